package perf

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCommandSurvivesTheWire(t *testing.T) {
	for _, c := range []command{
		{op: opHello},
		{op: opVerify, count: 1 << 40, seed: ^uint64(0)},
		{op: opEcho, size: 1, count: 0},
		{op: opSink, size: MaxSize, count: 1 << 32},
	} {
		var b [commandSize]byte
		c.put(&b)
		got, err := parseCommand(&b)
		require.NoError(t, err)
		assert.Equal(t, c, got)
	}
}

func TestServerRefusesCommandsOutOfRange(t *testing.T) {
	for _, c := range []command{
		{op: 0},
		{op: opCPU + 1},
		{op: opHello, size: MaxSize + 1},
		{op: opVerify, size: MaxSize + 1},
		{op: opVerify, count: 1<<40 + 1},
		{op: opEcho, size: 0, count: 1},
		{op: opEcho, size: MaxSize + 1, count: 1},
		{op: opSink, size: ^uint32(0), count: 1},
		{op: opSink, size: 1, count: 1<<32 + 1},
	} {
		var b [commandSize]byte
		c.put(&b)
		_, err := parseCommand(&b)
		assert.Error(t, err, "%+v", c)
	}
	var b [commandSize]byte
	copy(b[:], "GET / HTTP/1.1\r\n")
	_, err := parseCommand(&b)
	assert.ErrorIs(t, err, errNotPerf)
}

func FuzzParseCommand(f *testing.F) {
	var b [commandSize]byte
	command{op: opSink, size: 64, count: 1000, seed: 1}.put(&b)
	f.Add(b[:])
	f.Add(make([]byte, commandSize))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) != commandSize {
			return
		}
		c, err := parseCommand((*[commandSize]byte)(in))
		if err != nil {
			return
		}
		// The numbers with which serveConn computes must not overflow or ask for
		// too much.
		require.LessOrEqual(t, c.size, uint32(MaxSize))
		if c.op == opSink && c.count > 0 {
			require.Equal(t, uint64(c.size), c.count*uint64(c.size)/c.count)
		}
	})
}
