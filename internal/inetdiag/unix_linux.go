package inetdiag

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// UnixListeners calls each with the name and the user of each Unix socket of this network namespace that
// listens. Kernels before Linux 5.3 do not say the user, and each is not called.
func UnixListeners(each func(name string, uid int)) error {
	const unixDiagName, unixDiagUID = 0, 7
	c, err := OpenNetlink(unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return err
	}
	defer c.Close()
	message := NewRequest(sockDiagByFamily, unix.NLM_F_DUMP, 24) // struct unix_diag_req
	message[16] = unix.AF_UNIX
	order.PutUint32(message[20:], 1<<stateListen)
	order.PutUint32(message[28:], 1|1<<6) // UDIAG_SHOW_NAME, UDIAG_SHOW_UID
	_, err = c.Ask(message, make([]byte, dumpRoom), func(b []byte) error {
		var name string
		for b = b[min(16, len(b)):]; len(b) >= 4; { // attributes behind struct unix_diag_msg, the name first
			size := int(order.Uint16(b))
			if size < 4 || size > len(b) {
				break
			}
			switch kind := order.Uint16(b[2:]); {
			case kind == unixDiagName:
				name = string(bytes.TrimRight(b[4:size], "\x00"))
			case kind == unixDiagUID && size == 8:
				each(name, int(order.Uint32(b[4:])))
			}
			b = b[min((size+3)&^3, len(b)):]
		}
		return nil
	})
	return err
}
