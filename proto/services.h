/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What is generated from all .proto files together. */

#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

/** Every service, NULL at the end. */
extern const ProtobufCServiceDescriptor *const rp_proto_services[];

/** A google.protobuf.FileDescriptorSet of every file, in the order of their imports. */
extern const uint8_t rp_proto_files[];
extern const size_t rp_proto_files_length;
