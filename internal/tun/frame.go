package tun

import (
	"errors"
	"fmt"
)

// Sizes of frames, in bytes.
const (
	lengthSize = 4
	virtioSize = 10
	headSize   = lengthSize + virtioSize
	maxFrame   = 1 << 16
	maxBody    = maxFrame - lengthSize // what a length may be

	// maxMTU is the largest MTU, and the longest batch of segments. A frame of it fits a record of SDP.
	maxMTU = 65000
	minMTU = 1280 // IPv6 needs that
)

// hello is the first message of each side, little-endian.
type hello struct {
	Magic    [8]byte
	Version  uint16
	_        uint16
	MTU      uint32
	Offloads uint32 // that the sender's kernel takes: bits TUN_F of linux/if_tun.h
	_        uint32
}

// helloVersion is the version of hello and frames.
const helloVersion = 1

var helloMagic = [8]byte([]byte("sdp-tun\n"))

func newHello(mtu int, offloads uint32) hello {
	return hello{Magic: helloMagic, Version: helloVersion, MTU: uint32(mtu), Offloads: offloads}
}

// check returns an error if there can be no frames between a peer that sent h and this node, which sends own.
func (h hello) check(own hello) error {
	switch {
	case h.Magic != own.Magic:
		return errors.New("it is no sdp-tun")
	case h.Version != own.Version:
		return fmt.Errorf("it has version %d of sdp-tun's frames, and this node %d", h.Version, own.Version)
	case h.MTU != own.MTU:
		return fmt.Errorf("it has MTU %d, and this node %d: give all the same --mtu", h.MTU, own.MTU)
	}
	return nil
}
