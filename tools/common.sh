# SPDX-License-Identifier: Apache-2.0
# Sourced by the tools: packages, hugepages, what was changed and how it goes back.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
state_dir=${RP_STATE_DIR:-${XDG_STATE_HOME:-$HOME/.local/state}/ringpost}

say() { printf '== %s\n' "$*"; }
die() {
	printf '%s: %s\n' "$(basename "$0")" "$*" >&2
	exit 1
}

# packages_of SECTION...: the names in those sections of packages.txt.
packages_of() {
	local section
	for section; do
		sed -n "/^\[$section\]/,/^\[/{/^[a-z0-9]/p}" "$root/tools/packages.txt"
	done
}

# packages_install SECTION...: installs what is missing. Services that packages bring are not started: a
# file that forbids it stands in /usr/sbin meanwhile, where there is none.
packages_install() {
	local missing=() name policy=/usr/sbin/policy-rc.d made_policy=
	for name in $(packages_of "$@"); do
		[ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing+=("$name")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	if ! command -v apt-get >/dev/null; then
		die "these Debian packages are missing and there is no apt-get: ${missing[*]}"
	fi
	if [ "$(id -u)" != 0 ]; then
		die "not root, and these packages are missing. As root: apt-get install -y --no-install-recommends ${missing[*]}"
	fi
	say "installs ${missing[*]}"
	if [ ! -e $policy ]; then
		printf '#!/bin/sh\nexit 101\n' >$policy
		chmod +x $policy
		made_policy=yes
	fi
	local log status=0
	log=$(mktemp)
	export DEBIAN_FRONTEND=noninteractive
	{
		apt-get update -q && apt-get install -y -q --no-install-recommends "${missing[@]}"
	} >"$log" 2>&1 </dev/null || status=$?
	[ -z "$made_policy" ] || rm -f $policy
	if [ $status -ne 0 ]; then
		tail -n 20 "$log" >&2
		die "apt-get failed with status $status; its whole output is in $log"
	fi
	rm -f "$log"
}

nr_hugepages=/proc/sys/vm/nr_hugepages

free_hugepages() { awk '/^HugePages_Free/ { print $2 }' /proc/meminfo; }

# hugepages_take COUNT: sees to COUNT free pages where that is allowed; tells what it changed, and
# remembers the count that was there before the first change. Never a reason to stop: all works without.
hugepages_take() {
	local want=$1 free now
	free=$(free_hugepages)
	[ "${free:-0}" -lt "$want" ] || return 0
	if [ ! -w $nr_hugepages ]; then
		say "hugepages: $free free, $want wanted, $nr_hugepages cannot be written: goes on without"
		return 0
	fi
	now=$(cat $nr_hugepages)
	mkdir -p "$state_dir"
	[ -e "$state_dir/nr_hugepages" ] || echo "$now" >"$state_dir/nr_hugepages"
	if ! echo $((now + want - free)) >$nr_hugepages 2>/dev/null || [ "$(free_hugepages)" -lt "$want" ]; then
		say "hugepages: the kernel gave $(free_hugepages) of $want: goes on with those"
	fi
	say "changed $nr_hugepages from $now to $(cat $nr_hugepages); --undo puts $(cat "$state_dir/nr_hugepages") back"
}

hugepages_undo() {
	if [ ! -e "$state_dir/nr_hugepages" ]; then
		say "hugepages: nothing was changed"
		return 0
	fi
	local before
	before=$(cat "$state_dir/nr_hugepages")
	echo "$before" >$nr_hugepages || die "cannot write $nr_hugepages"
	rm -f "$state_dir/nr_hugepages"
	say "put $nr_hugepages back to $before"
}

# One release tree for all tools, so that one does not rebuild what another built.
release_options=(--buildtype=release -Dwerror=true)

# build_in DIR OPTION... [-- TARGET...]: sets a build folder up once, then builds what is new, one caller
# at a time. Quiet unless it fails.
build_in() {
	local dir=$1 log status=0 options=() lock
	shift
	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		options+=("$1")
		shift
	done
	[ $# -eq 0 ] || shift
	mkdir -p "$root/$dir"
	exec {lock}>"$root/$dir/.lock"
	flock -w 3600 "$lock"
	log=$(mktemp)
	if [ -e "$root/$dir/build.ninja" ]; then
		meson configure "$root/$dir" "${options[@]}" >"$log" 2>&1 || status=$?
	else
		meson setup "$root/$dir" "$root" "${options[@]}" >"$log" 2>&1 || status=$?
	fi
	[ $status -ne 0 ] || ninja -C "$root/$dir" "$@" >>"$log" 2>&1 || status=$?
	exec {lock}>&-
	if [ $status -ne 0 ]; then
		grep -E 'error|warning|ERROR|FAILED' "$log" | head -n 40 >&2
		printf 'the build in %s failed; its whole output is in %s\n' "$dir" "$log" >&2
		return $status
	fi
	rm -f "$log"
}
