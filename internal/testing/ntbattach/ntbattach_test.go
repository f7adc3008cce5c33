package ntbattach_test

import (
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/ntbattach"
	"github.com/ntbnet/ntbnet/internal/testing/ntbtest"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
)

func TestConformance(t *testing.T) {
	ntbtest.RunAttachments(t, func(*testing.T) (a, b ntb.Attachment) {
		return ntbattach.Ends(func() (a, b ntb.Device) { return ntbmem.Pair(4 << 10) })
	})
}
