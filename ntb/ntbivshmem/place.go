package ntbivshmem

import (
	"fmt"
	"regexp"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/ntb/ntbfixed"
)

// MaxPlaces is the most places that a memory is divided among.
const MaxPlaces = 16

// Place says which part of a memory the two ends of a bridge use.
type Place struct {
	Places int // how many the memory has, 2 to MaxPlaces, the same at all ends
	Own    int // this end's, from 0 on
	Peer   int // the other end's
	// Heap is how many bytes at the end of each place's areas are left to heaps, see [Place.HeapAt]. It is a
	// multiple of the page, and 0 where there are none.
	Heap int
	// Least is how much of each window is needed besides.
	Least int
	// Silence is that of ntbfixed.Config.
	Silence time.Duration
}

func (p Place) check() error {
	in := func(i int) bool { return i >= 0 && i < p.Places }
	if p.Places < 2 || p.Places > MaxPlaces || !in(p.Own) || !in(p.Peer) || p.Own == p.Peer {
		return fmt.Errorf("ntbivshmem: a bridge from place %d to %d of %d: want two of 2 to %d places", p.Own, p.Peer, p.Places, MaxPlaces)
	}
	return nil
}

// area returns where in a memory of size bytes the area lies that the end at place owner reads and
// the one at place writer writes.
func (p Place) area(size int64, owner, writer int) (off int64, n int) {
	each := size / int64(p.Places*(p.Places-1)) &^ (ntbfixed.PageSize - 1)
	i := p.index(owner, writer)
	off, n = each*int64(i), int(each)
	if i%(p.Places-1) == p.Places-2 {
		n -= p.Heap
	}
	return off, n
}

// index returns the number of that area, from 0 on.
func (p Place) index(owner, writer int) int {
	if writer > owner {
		writer--
	}
	return owner*(p.Places-1) + writer
}

// HeapAt returns where in a memory of size bytes a place has its Heap bytes: at the end of the last of the areas that
// it reads. room is what they share with the window of that area.
func (p Place) HeapAt(size int64, place int) (off int64, room int) {
	last := p.Places - 1
	if place == last {
		last--
	}
	off, n := p.area(size, place, last)
	return off + int64(n), n + p.Heap - ntbfixed.PageSize
}

// CheckHeap returns an error if a memory of size bytes has no room for what the places have for heaps.
func (p Place) CheckHeap(size int64) error {
	_, room := p.HeapAt(size, 0)
	if most := room - p.Least; p.Heap != 0 && p.Heap > most {
		return fmt.Errorf("option heap=%d: a memory of %d bytes has room for at most heap=%d beside the links: %w", p.Heap, size, max(0, most), syscall.EINVAL)
	}
	return nil
}

// memories sets both ends' memories in a configuration: parts of the memory of size bytes that begins at an offset of a file.
func (p Place) memories(c *ntbfixed.Config, fd int, from, size int64) error {
	part := func(off int64, n int) ntbfixed.Memory { return ntbfixed.Memory{FD: fd, Offset: from + off, Len: n} }
	c.Own, c.Peer = part(p.area(size, p.Own, p.Peer)), part(p.area(size, p.Peer, p.Own))
	c.Silence = p.Silence
	return p.CheckHeap(size)
}

var addressForm = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// IsAddress reports whether a text has the form of a PCI function's address, as 0000:00:03.0 has.
func IsAddress(s string) bool { return addressForm.MatchString(s) }
