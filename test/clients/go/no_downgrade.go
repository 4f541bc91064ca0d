// SPDX-License-Identifier: Apache-2.0

//go:build !clientv3_3.6

package main

// downgrade is in no version before 3.6.
func downgrade(*run) []string { return nil }
