// SPDX-License-Identifier: Apache-2.0

//! The library's version, which the program prints: as Cargo.lock has it.

fn main() {
    let lock = std::fs::read_to_string("Cargo.lock").expect("Cargo.lock");
    let at = lock.find("name = \"etcd-client\"\nversion = \"").expect("etcd-client in Cargo.lock");
    let version = lock[at..].split('"').nth(3).expect("its version");
    println!("cargo:rustc-env=ETCD_CLIENT_VERSION={version}");
    println!("cargo:rerun-if-changed=Cargo.lock");
}
