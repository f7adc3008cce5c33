//go:build linux

// Command ntb-ivshmem-server hands out memory to virtual machines and processes of the host, so
// that SDP runs between them. It speaks the protocol of QEMU's ivshmem-server.
//
//	ntb-ivshmem-server /run/lab.sock
//	qemu-system-x86_64 -chardev socket,path=/run/lab.sock,id=lab -device ivshmem-doorbell,chardev=lab,vectors=1 …
//	SDP_FABRIC='line:lab?node=1&nodes=2&right=ivshmem:/run/lab.sock' server
//
// Each socket is a memory of its own, which makes one bridge. Package internal/ivshmem does the
// work. "ntb-ivshmem-server --help" describes all flags.
package main
