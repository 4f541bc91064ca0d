// SPDX-License-Identifier: Apache-2.0

//go:build clientv3_3.6

package main

import clientv3 "go.etcd.io/etcd/client/v3"

// downgrade gives the errors of a cancel when there is none, and of versions that cannot be.
func downgrade(r *run) (errors []string) {
	_, err := r.cli.Downgrade(r.ctx, clientv3.DowngradeCancel, "")
	errors = append(errors, err.Error())
	for _, version := range []string{"x", "3.3.0"} {
		_, err = r.cli.Downgrade(r.ctx, clientv3.DowngradeValidate, version)
		errors = append(errors, err.Error())
	}
	return errors
}
