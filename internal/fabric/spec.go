package fabric

import (
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbdma"
)

// Spec is a fabric and its options, in the form KIND:NAME?OPTION=VALUE&…
//
//	window=BYTES  size of this side's window on each link, a multiple of 4096,
//	              128 KiB or more
//	buffer=BYTES  how large a connection's queue may grow, per direction: a power
//	              of two from 4096 to 16777216
//	spin=TIME     how long a wait looks before it sleeps, "0" to "1ms"
//	dma=N         a DMA engine of software with N channels, 0 to 16: for trials
//	dmafrom=BYTES size from which on payload goes through an engine, 1 or more;
//	              0 to measure it when a link comes up
type Spec struct {
	Kind, Name string
	Window     int           // 0: the kind's default
	Buffer     int           // 0: the default
	Spin       time.Duration // -1: the default
	DMA        int           // channels of a software engine
	DMAFrom    int
}

// DefaultSpec is the fabric of a process that names none: SDP_FABRIC's, or else
// the user's own on this machine.
func DefaultSpec() string {
	if spec := os.Getenv(EnvFabric); spec != "" {
		return spec
	}
	return "shm:" + DefaultName
}

// ParseSpec checks a spec. The error wraps EINVAL and says what is wanted.
func ParseSpec(s string) (*Spec, error) {
	rest, query, _ := strings.Cut(s, "?")
	spec := &Spec{Spin: -1}
	spec.Kind, spec.Name, _ = strings.Cut(rest, ":")
	if spec.Kind != "shm" && spec.Kind != "mem" {
		return nil, fmt.Errorf("fabric %q: want shm:NAME or mem:NAME: %w", s, syscall.EINVAL)
	}
	if err := checkName(spec.Name); err != nil {
		return nil, err
	}
	options, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("fabric %q: %v: %w", s, err, syscall.EINVAL)
	}
	for name, values := range options {
		if err := spec.set(name, values[len(values)-1]); err != nil {
			return nil, fmt.Errorf("fabric %q: option %s=%s: %v: %w", s, name, values[len(values)-1], err, syscall.EINVAL)
		}
	}
	return spec, nil
}

func (s *Spec) set(name, value string) (err error) {
	switch name {
	case "window":
		s.Window, err = strconv.Atoi(value)
		if err == nil && (s.Window < 128<<10 || s.Window > 64<<30 || s.Window%4096 != 0) {
			err = fmt.Errorf("want a multiple of 4096 from 131072 to 64 GiB")
		}
	case "buffer":
		s.Buffer, err = strconv.Atoi(value)
		if err == nil && (s.Buffer < 4<<10 || s.Buffer > 16<<20 || s.Buffer&(s.Buffer-1) != 0) {
			err = fmt.Errorf("want a power of two from 4096 to 16777216")
		}
	case "spin":
		s.Spin, err = time.ParseDuration(value)
		if err == nil && (s.Spin < 0 || s.Spin > time.Millisecond) {
			err = fmt.Errorf("want a time from 0 to 1ms")
		}
	case "dma":
		s.DMA, err = strconv.Atoi(value)
		if err == nil && (s.DMA < 0 || s.DMA > 16) {
			err = fmt.Errorf("want 0 to 16 channels")
		}
	case "dmafrom":
		s.DMAFrom, err = strconv.Atoi(value)
		if err == nil && s.DMAFrom < 0 {
			err = fmt.Errorf("want 0 or more bytes")
		}
	default:
		err = fmt.Errorf("want window, buffer, spin, dma or dmafrom")
	}
	return err
}

// wrap puts the software engine around a device, if the spec asks for one.
func (s *Spec) wrap(dev ntb.Device) ntb.Device {
	if s.DMA == 0 {
		return dev
	}
	return ntbdma.Wrap(dev, ntbdma.Options{Channels: s.DMA})
}
