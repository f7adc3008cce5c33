package main

import (
	"bytes"
	"context"
	"testing"

	"github.com/ntbnet/ntbnet/internal/fabrictest"
	"github.com/stretchr/testify/require"
)

func TestCrossoverPrintsEachSize(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, runCrossover(context.Background(), nil, &out))
	for _, size := range []string{"512", "1024", "4096", "65536"} {
		require.Contains(t, out.String(), size+" ")
	}
	require.Contains(t, out.String(), "the engine")
}

func TestCrossoverOfAFabricThatIsNamed(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, runCrossover(context.Background(), []string{"--fabric", "shm:" + fabrictest.Name(t)}, &out))
	require.Contains(t, out.String(), "the engine")
	err := runCrossover(context.Background(), []string{"--fabric", "tcp:x"}, &out)
	require.Equal(t, exitBadInput, exitStatus(err), "%v", err)
}
