package ntbshm

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/wiredoc"
	"github.com/ntbnet/ntbnet/ntb"
)

func TestMessageIsReadAsItWasWritten(t *testing.T) {
	for _, h := range []message{
		{membarrier: true, window: 1 << 30, doorbells: 1},
		{window: minWindow, doorbells: maxDoorbells},
		{window: maxWindow, doorbells: 2},
	} {
		got, err := parseMessage(h.encode())
		if err != nil || got != h {
			t.Errorf("got %+v, %v, want %+v", got, err, h)
		}
	}
}

func TestBadMessageIsRefused(t *testing.T) {
	good := message{membarrier: true, window: 8192, doorbells: 1}.encode()
	with := func(off int, p ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[off:], p)
		return b
	}
	tests := []struct {
		name string
		msg  []byte
		want error
	}{
		{"nothing", nil, ErrBadPeer},
		{"short", good[:31], ErrBadPeer},
		{"only magic and version", good[:12], ErrBadPeer},
		{"long", append(bytes.Clone(good), 0), ErrBadPeer},
		{"magic", with(0, 'N'), ErrBadPeer},
		{"version 0", with(8, 0), ntb.ErrVersion},
		{"version 1", with(8, 1), ntb.ErrVersion},
		{"version 3, longer", append(with(8, 3), 1, 2, 3), ntb.ErrVersion},
		{"unknown flag", with(12, 2), ErrBadPeer},
		{"window 0", with(16, 0, 0), ErrBadPeer},
		{"window of a part line", with(16, 1), ErrBadPeer},
		{"window too large", with(16, 64, 0, 0, 0, 16), ErrBadPeer},
		{"negative window", with(16, 0, 0, 0, 0, 0, 0, 0, 0x80), ErrBadPeer},
		{"no doorbells", with(24, 0), ErrBadPeer},
		{"too many doorbells", with(24, 17), ErrBadPeer},
		{"doorbells of 32 bits", with(24, 1, 0, 0, 0x80), ErrBadPeer},
		{"end not zero", with(31, 1), ErrBadPeer},
	}
	for _, tt := range tests {
		if _, err := parseMessage(tt.msg); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

func TestASideWithoutItsHalfSaysWhy(t *testing.T) {
	for _, c := range []struct{ err, want error }{
		{fmt.Errorf("map: %w", syscall.ENOMEM), syscall.ENOMEM},
		{errors.New("no number"), nil},
	} {
		_, err := parseMessage(noHalf(c.err))
		half := new(HalfError)
		if !errors.As(err, &half) || !half.Peer || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%v was read as %v", c.err, err)
		}
	}
	bad := noHalf(syscall.EFBIG)
	bad[31] = 1
	if _, err := parseMessage(bad); !errors.Is(err, ErrBadPeer) {
		t.Errorf("a number that is no error's: %v", err)
	}
}

func FuzzParseMessage(f *testing.F) {
	f.Add(message{membarrier: true, window: 8192, doorbells: 1}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseMessage(b)
		if err == nil && !bytes.Equal(h.encode(), b) {
			t.Errorf("%x was read as %+v, which is %x", b, h, h.encode())
		}
	})
}

func TestOptionsOutOfRangeAreRefused(t *testing.T) {
	for _, o := range []Options{
		{Window: -4096}, {Window: 64}, {Window: 4097}, {Doorbells: -1}, {Doorbells: 17},
	} {
		if _, err := o.withDefaults(); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	o, err := Options{}.withDefaults()
	if err != nil || o != (Options{Window: 1 << 30, Doorbells: 1}) {
		t.Errorf("defaults are %+v, %v", o, err)
	}
}

func TestTheMessageIsThatOfTheExample(t *testing.T) {
	want, wire := wiredoc.Vector(t, "cable")
	m, err := parseMessage(wire)
	if err != nil {
		t.Fatal(err)
	}
	membarrier := 0
	if m.membarrier {
		membarrier = 1
	}
	if values := fmt.Sprintf("membarrier=%d window=%d doorbells=%d", membarrier, m.window, m.doorbells); values != want {
		t.Errorf("got %s, want %s", values, want)
	}
	if got := m.encode(); !bytes.Equal(got, wire) {
		t.Errorf("got %x, want %x", got, wire)
	}
}
