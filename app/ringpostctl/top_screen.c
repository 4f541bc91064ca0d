/* SPDX-License-Identifier: Apache-2.0 */

/* The screen of `top`: rows in an order, keys, and a terminal that is as before at the end. */

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <base/units.h>

#include "table.h"
#include "top.h"

#define WIDTH_TEXT 132
#define NAME_WIDTH 28

static struct termios was; /* of the terminal; there is one */

/* ---- order ---- */

static const struct top_choice *order; /* of the sort under way */

static int by_number(double a, double b)
{
	return a < b ? 1 : a > b ? -1 : 0;
}

static int queue_order(const void *a, const void *b)
{
	const struct top_queue *x = a, *y = b;
	int d = 0;

	switch (order->sort) {
	case 'p':
		d = by_number(x->puts, y->puts);
		break;
	case 'd':
		d = by_number(x->accepts, y->accepts);
		break;
	case 'a':
		d = by_number(x->acks, y->acks);
		break;
	case 'm':
		d = by_number(x->v->messages, y->v->messages);
		break;
	case 'w':
		d = by_number((double)x->v->waiting_oldest_ns, (double)y->v->waiting_oldest_ns);
		break;
	case 'f':
		d = by_number((double)x->v->in_flight_oldest_ns, (double)y->v->in_flight_oldest_ns);
		break;
	case 'b':
		d = by_number((double)x->v->bytes, (double)y->v->bytes);
		break;
	default:
		break;
	}
	/* Where nothing happens, those that hold something come first. */
	if (d == 0 && order->sort != 'n')
		d = by_number(x->v->messages, y->v->messages);
	if (d == 0)
		d = strcmp(x->v->name, y->v->name);
	return order->reversed ? -d : d;
}

static int consumer_order(const void *a, const void *b)
{
	const struct top_consumer *x = a, *y = b;
	int d = 0;

	switch (order->sort) {
	case 'p':
	case 'd':
		d = by_number(x->offers, y->offers);
		break;
	case 'a':
		d = by_number(x->acks, y->acks);
		break;
	case 'm':
		d = by_number(x->v->outstanding, y->v->outstanding);
		break;
	case 'w':
	case 'f':
		d = by_number((double)x->v->oldest_ns, (double)y->v->oldest_ns);
		break;
	default:
		break;
	}
	if (d == 0)
		d = strcmp(x->v->queue, y->v->queue);
	if (d == 0)
		d = strcmp(x->v->uuid, y->v->uuid);
	return order->reversed ? -d : d;
}

void top_sort(struct top_look *l, const struct top_choice *choice)
{
	order = choice;
	if (l->queue_count)
		qsort(l->queues, l->queue_count, sizeof(*l->queues), queue_order);
	if (l->consumer_count)
		qsort(l->consumers, l->consumer_count, sizeof(*l->consumers), consumer_order);
}

/* ---- text ---- */

struct page {
	FILE *out;
	int width;
	const char *end; /**< of each line */
};

/* A line, no wider than the page. */
__attribute__((format(printf, 2, 3))) static void line(
	const struct page *p, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(p->out, "%.*s%s", p->width, text, p->end);
}

static const char *text_rate(char text[TABLE_CELL_SIZE], double rate)
{
	snprintf(text, TABLE_CELL_SIZE, rate < 10 && rate > 0 ? "%.1f" : "%.0f", rate);
	return text;
}

static const char *text_age(char text[TABLE_CELL_SIZE], uint64_t ns)
{
	return ns ? text_ns(text, ns) : "-";
}

/* Bytes that a terminal would take for orders are none of a name. */
static const char *text_name(char text[TABLE_CELL_SIZE], const char *name)
{
	snprintf(text, TABLE_CELL_SIZE, strlen(name) > NAME_WIDTH ? "%.25s..." : "%s", name);
	for (char *c = text; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
	return text;
}

static void head_write(const struct page *p, const struct top_look *l)
{
	const Ringpost__V1__StatusReply *s = l->status;
	char t[4][TABLE_CELL_SIZE];

	line(p, "node %" PRIu64 " %s: %s, up %s; %u of %u other nodes online, %u links", s->node,
		s->name, s->state, text_ns(t[0], s->uptime_ns), s->peers_online, s->peers,
		s->links_up);
	line(p, "%u queues (%u here), %u messages, %s bytes; %u consumers; %u of %u buffers free",
		s->queues, s->dispatched, s->messages, text_bytes(t[1], s->message_bytes),
		s->consumers, s->buffers_free, s->buffers);
	if (l->interval_s > 0)
		line(p, "puts/s %s, deliveries/s %s, acks/s %s, over %.1f s%s",
			text_rate(t[0], l->sum.puts), text_rate(t[1], l->sum.accepts),
			text_rate(t[2], l->sum.acks), l->interval_s,
			l->more ? "; of the queues looked at, and there are more" : "");
	else
		line(p, "the first rates come in a moment");
}

static void queues_write(const struct page *p, const struct top_look *l, size_t rows)
{
	char t[8][TABLE_CELL_SIZE];

	line(p, "%-*s %9s %9s %9s %9s %9s %9s %8s %8s %9s %s", NAME_WIDTH, "QUEUE", "PUTS/s",
		"DELIV/s", "ACKS/s", "MESSAGES", "WAITING", "HELD", "OLDEST", "HELD FOR", "BYTES",
		"CONSUMERS");
	for (size_t i = 0; i < l->queue_count && i < rows; i++) {
		const struct top_queue *x = &l->queues[i];

		line(p, "%-*s %9s %9s %9s %9u %9u %9u %8s %8s %9s %u+%u%s", NAME_WIDTH,
			text_name(t[0], x->v->name), text_rate(t[1], x->puts),
			text_rate(t[2], x->accepts), text_rate(t[3], x->acks), x->v->messages,
			x->v->waiting, x->v->in_flight, text_age(t[4], x->v->waiting_oldest_ns),
			text_age(t[5], x->v->in_flight_oldest_ns), text_bytes(t[6], x->v->bytes),
			x->v->consumers_local, x->v->consumers_remote,
			x->v->here ? "" : ", dispatched elsewhere");
	}
}

static void consumers_write(const struct page *p, const struct top_look *l, size_t rows)
{
	char t[8][TABLE_CELL_SIZE];

	line(p, "%-*s %-36s %9s %9s %9s %9s %8s %-12s %s", NAME_WIDTH, "QUEUE", "CONSUMER",
		"DELIV/s", "ACKS/s", "OFFERED", "PREFETCH", "HELD FOR", "STATE", "NODE");
	for (size_t i = 0; i < l->consumer_count && i < rows; i++) {
		const struct top_consumer *x = &l->consumers[i];

		if (x->v->here)
			snprintf(t[4], TABLE_CELL_SIZE, "this node");
		else
			snprintf(t[4], TABLE_CELL_SIZE, "%" PRIu64, x->v->node);
		line(p, "%-*s %-36s %9s %9s %9u %9u %8s %-12s %s", NAME_WIDTH,
			text_name(t[0], x->v->queue), x->v->uuid, text_rate(t[1], x->offers),
			text_rate(t[2], x->acks), RP_MAX(x->v->outstanding, x->v->holds),
			x->v->prefetch, text_age(t[3], x->v->oldest_ns), x->v->state, t[4]);
	}
}

static void help_write(const struct page *p)
{
	line(p, "keys, for the order:  p puts/s   d deliveries/s   a acks/s   m messages   b bytes");
	line(p, "                      w oldest waiting   f longest held   n name   r reversed");
	line(p, "c queues or consumers   space a new look now   h this help   q the end");
}

static void page_write(const struct page *p, const struct top_look *l,
	const struct top_choice *choice, size_t rows)
{
	head_write(p, l);
	line(p, "%s", "");
	if (choice->help)
		help_write(p);
	else if (choice->consumers)
		consumers_write(p, l, rows);
	else
		queues_write(p, l, rows);
}

void top_write(FILE *out, const struct top_look *l, const struct top_choice *choice, size_t rows)
{
	const struct page p = {.out = out, .width = WIDTH_TEXT, .end = "\n"};

	page_write(&p, l, choice, rows);
}

/* ---- the terminal ---- */

void top_screen_draw(struct top_screen *s, struct top_look *l)
{
	struct page p = {.out = stdout, .width = 80, .end = "\x1b[K\r\n"};
	struct winsize w;
	size_t rows = 24;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 && w.ws_row > 0) {
		p.width = w.ws_col;
		rows = w.ws_row;
	}
	top_sort(l, s->choice);
	fputs("\x1b[H", stdout);
	/* Five lines are not rows, and what is written last leaves no line below it. */
	page_write(&p, l, s->choice, rows > 6 ? rows - 6 : 1);
	fputs("\x1b[J", stdout);
	fflush(stdout);
}

static void key_take(struct top_choice *c, char key)
{
	switch (key) {
	case 'q':
	case 3: /* Ctrl-C, where the terminal does not make it a signal */
		c->quit = true;
		break;
	case 'c':
		c->consumers = !c->consumers;
		break;
	case 'r':
		c->reversed = !c->reversed;
		break;
	case ' ':
		c->now = true;
		return;
	case 'h':
	case '?':
		c->help = !c->help;
		return;
	default:
		if (!strchr("pdamwfbn", key))
			return;
		c->sort = key;
		c->reversed = false;
		break;
	}
	c->help = false;
}

static void on_keys(void *ctx, uint32_t events)
{
	struct top_screen *s = ctx;
	char keys[64];
	ssize_t n = read(STDIN_FILENO, keys, sizeof(keys));

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		s->choice->quit = true;
	for (ssize_t i = 0; i < n; i++)
		key_take(s->choice, keys[i]);
	s->woken = true;
}

static void on_signal(void *ctx, int signal)
{
	struct top_screen *s = ctx;

	if (signal != SIGWINCH)
		s->choice->quit = true;
	s->woken = true;
}

int top_screen_begin(struct top_screen *s, struct rp_loop *loop, struct top_choice *choice)
{
	struct termios raw;
	sigset_t set;
	int rc;

	*s = (struct top_screen){.choice = choice, .loop = loop};
	if (tcgetattr(STDIN_FILENO, &was) != 0)
		return -errno;
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGWINCH);
	rc = rp_loop_signals_add(loop, &s->signals, &set, on_signal, s);
	if (rc < 0)
		return rc;
	rp_loop_fd_setup(&s->keys, on_keys, s);
	rc = rp_loop_fd_add(loop, &s->keys, STDIN_FILENO, EPOLLIN);
	if (rc < 0) {
		rp_loop_signals_remove(&s->signals);
		return rc;
	}
	raw = was;
	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	raw.c_cc[VMIN] = 0;
	raw.c_cc[VTIME] = 0;
	tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	/* The other screen, without a cursor. */
	fputs("\x1b[?1049h\x1b[?25l\x1b[2J", stdout);
	fflush(stdout);
	return 0;
}

void top_screen_end(struct top_screen *s)
{
	fputs("\x1b[?25h\x1b[?1049l", stdout);
	fflush(stdout);
	tcsetattr(STDIN_FILENO, TCSANOW, &was);
	rp_loop_fd_remove(&s->keys);
	rp_loop_signals_remove(&s->signals);
}
