package inetdiag

import (
	"bytes"

	"golang.org/x/sys/unix"
)

const (
	unixRequestSize = 24       // struct unix_diag_req
	unixAnswerSize  = 16       // struct unix_diag_msg
	unixShow        = 1 | 1<<6 // UDIAG_SHOW_NAME, UDIAG_SHOW_UID
	unixName        = 0        // UNIX_DIAG_NAME
	unixUID         = 7        // UNIX_DIAG_UID
	attributeHeader = unix.NLA_HDRLEN
)

// UnixListeners calls each with the name and the user of each Unix socket of this network namespace that
// listens. Kernels before Linux 5.3 do not say the user, and each is not called.
func UnixListeners(each func(name string, uid int)) error {
	c, err := OpenNetlink(unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return err
	}
	defer c.Close()
	message := NewRequest(sockDiagByFamily, unix.NLM_F_DUMP, unixRequestSize)
	message[headerSize] = unix.AF_UNIX
	order.PutUint32(message[headerSize+4:], 1<<stateListen)
	order.PutUint32(message[headerSize+12:], unixShow)
	_, err = c.Ask(message, make([]byte, dumpRoom), func(b []byte) error {
		var name []byte
		uid := -1
		for b = b[min(unixAnswerSize, len(b)):]; len(b) >= attributeHeader; {
			size := int(order.Uint16(b))
			if size < attributeHeader || size > len(b) {
				break
			}
			switch value := b[attributeHeader:size]; {
			case order.Uint16(b[2:]) == unixName:
				name = bytes.TrimRight(value, "\x00")
			case order.Uint16(b[2:]) == unixUID && len(value) == 4:
				uid = int(order.Uint32(value))
			}
			b = b[min((size+3)&^3, len(b)):]
		}
		if uid >= 0 {
			each(string(name), uid)
		}
		return nil
	})
	return err
}
