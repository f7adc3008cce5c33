package lock

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The ranks follow the order of the table, each once. No class is left out.
func TestRanksAreTheOrderOfTheTable(t *testing.T) {
	all := []Class{
		Team{}, Channel{}, World{}, Slots{}, Heap{}, Turns{}, Sets{}, Sleeper{},
		DefaultFabric{}, Stacks{}, Users{}, Hosts{}, Poll{}, Visit{}, Read{}, Write{}, Grow{},
		Stack{}, Listen{}, Dial{}, Pool{}, StateWord{}, State{}, DMA{}, Setup{}, LaneIn{}, Receive{},
		LaneOut{}, Tunnel{}, Node{}, Router{}, Tunnels{}, Hub{}, Dir{}, Bytes{}, Attach{}, SendQueue{}, Notes{}, Grants{}, LinkErr{}, Wait{}, Accept{},
		Raw{}, DataArm{}, Counts{}, Queue{},
	}
	text, err := os.ReadFile("classes.go")
	require.NoError(t, err)
	require.Len(t, all, strings.Count(string(text), ") class() info "), "classes of the table")
	names, last := map[string]bool{}, 0
	for _, c := range all {
		i := c.class()
		require.Greater(t, i.rank, last, i.name)
		require.False(t, names[i.name], i.name)
		names[i.name], last = true, i.rank
	}
}
