package sdp

import (
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/bounce"
	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/internal/testing/ntbdma"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"
)

// openMem is a fabric within this process, whose bridges are wrapped.
func openMem(window int, wrap func(a, b ntb.Device) (ntb.Device, ntb.Device), start func(*fabric.Fabric)) *fabric.Fabric {
	s, err := spec.Parse("mem:test")
	if err != nil {
		panic(err)
	}
	s.Window, s.Wrap = window, wrap
	f, err := fabric.Open(s, start)
	if err != nil {
		panic(err)
	}
	return f
}

// openWrapped returns a Fabric on a fabric within this process whose bridges are
// wrapped.
func openWrapped(o bounce.Options, window int, wrap func(a, b ntb.Device) (ntb.Device, ntb.Device)) *Fabric {
	s := newStack(o)
	s.fabric, s.refs = openMem(window, wrap, s.start), 1
	return newFabric(s, &networkCounters{})
}

func TestConnWithEverythingThroughDMA(t *testing.T) {
	for name, e := range map[string]ntbdma.Options{
		"engine":         {Channels: 2},
		"failing engine": {Channels: 2, FailEvery: 2},
	} {
		t.Run(name, func(t *testing.T) {
			o := bounce.Options{Spin: -1, DMAThreshold: 1}
			f := openWrapped(o, 16<<20, ntbdma.Around(e))
			defer f.Close()
			nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) { return pipe(f) })
			s := f.Stats()
			require.Positive(t, s.DMABytes)
			require.Zero(t, s.MMIOBytes+s.InlineBytes)
			require.Equal(t, e.FailEvery > 0, s.DMAErrors > 0)
		})
	}
	t.Run("shm", func(t *testing.T) {
		f, err := OpenWith("shm:"+fabrictest.Name(t)+"?dmafrom=1", Devices{Wrap: ntbdma.Around(ntbdma.Options{Channels: 2})})
		require.NoError(t, err)
		defer f.Close()
		nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) { return pipe(f) })
		require.Positive(t, f.Stats().DMABytes)
	})
}

// A channel's queue that others have filled stops no connection.
func TestManyConnectionsShareAChannel(t *testing.T) {
	f, err := OpenWith("mem:test?dmafrom=1&window=134217728", Devices{Wrap: ntbdma.Around(ntbdma.Options{Channels: 1})})
	require.NoError(t, err)
	defer f.Close()
	ln, err := f.Listen("sdp", "localhost:0")
	require.NoError(t, err)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go io.Copy(c, struct{ io.Reader }{c})
		}
	}()
	var all sync.WaitGroup
	start := make(chan struct{})
	for range 100 {
		c, err := f.Dial("sdp", ln.Addr().String())
		require.NoError(t, err)
		all.Go(func() {
			<-start
			p := make([]byte, 3000)
			for range 30 {
				c.SetReadDeadline(time.Now().Add(60 * time.Second))
				if _, err := c.Write(p); err != nil {
					t.Error(err)
					return
				}
				if _, err := io.ReadFull(c, p); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	close(start)
	all.Wait()
}

func TestNoEngineMeansNoDMA(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		a, b := mustPipe(t, f)
		go a.Write(make([]byte, 1<<20))
		_, err := io.ReadFull(b, make([]byte, 1<<20))
		require.NoError(t, err)
		require.Zero(t, f.Stats().DMABytes)
		require.Empty(t, f.Crossovers())
	})
}

func TestCrossoverIsMeasuredAtLinkUp(t *testing.T) {
	f, err := OpenWith("shm:"+fabrictest.Name(t), Devices{Wrap: ntbdma.Around(ntbdma.Options{Channels: 1})})
	require.NoError(t, err)
	defer f.Close()
	mustPipe(t, f)
	all := f.Crossovers()
	require.Len(t, all, 2) // both ends of the link to itself
	for _, c := range all {
		require.NotEmpty(t, c.Points)
		for i, p := range c.Points {
			require.Equal(t, 512<<i, p.Size)
			require.Positive(t, p.MMIO)
			require.Positive(t, p.DMA)
		}
	}
}

// The process that opens the fabric first decides what its bridges are.
func TestDevicesCannotBePutAroundBridgesThatAreThere(t *testing.T) {
	name := "shm:" + fabrictest.Name(t)
	first, err := Open(name)
	require.NoError(t, err)
	around := Devices{Wrap: ntbdma.Around(ntbdma.Options{Channels: 1})}
	_, err = OpenWith(name, around)
	require.ErrorIs(t, err, syscall.EBUSY)
	require.NoError(t, first.Close())
	f, err := OpenWith(name, around)
	require.NoError(t, err)
	defer f.Close()
	second, err := Open(name) // shares it
	require.NoError(t, err)
	defer second.Close()
	mustPipe(t, second)
	require.NotEmpty(t, second.Crossovers())
}
