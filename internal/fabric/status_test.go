package fabric

import (
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/ntbnet/ntbnet/internal/greeting"
	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/stretchr/testify/require"
)

// A process of another user, unless it is root's, is served counts of connections, no more.
func TestWhatAnotherUserIsServed(t *testing.T) {
	f := mustNode(t, "mem", "ring:"+ownName(t)+"?nodes=2", 1)
	f.Describe(func(bool) []status.Connection {
		return []status.Connection{
			{Node: 1, Process: 7, Count: 1, Local: "a:1", Remote: "b:2", Read: 3, Inline: 4, MMIO: 5, DMA: 6, Doorbells: 7, ReadWaits: 8, RoomWaits: 9},
			{Node: 1, Process: 7, Count: 1, Local: "a:1", Remote: "b:3"},
		}
	}, func(p *status.Process) { p.Warm, p.WarmRoom = 1, 2 })
	f.refused.add(errors.New("pid 1, uid 2"))
	served := func(uid int) map[string]any {
		answer := f.greeting("")
		_, err := f.judge(Peer{UID: uid}, &greeting.Message{Version: greeting.Version, Want: greeting.WantStatus}, answer)
		require.NoError(t, err)
		text, err := json.Marshal(answer.Status)
		require.NoError(t, err)
		var fields map[string]any
		require.NoError(t, json.Unmarshal(text, &fields))
		return fields
	}
	for _, uid := range []int{0, os.Geteuid()} {
		own := served(uid)
		require.Equal(t, "pid 1, uid 2", own["last_refusal"])
		require.Len(t, own["connections"], 2)
		require.Equal(t, 1.0, own["warm_bytes"])
		require.Equal(t, 2.0, own["warm_room_bytes"])
	}
	for _, uid := range []int{os.Geteuid() + 1, -1} {
		other := served(uid)
		require.Equal(t, []any{map[string]any{"node": 1.0, "process": 7.0, "count": 2.0}}, other["connections"])
		for key := range other {
			require.Contains(t, []string{"process", "node", "pid", "uid", "gid", "owns_links", "ports", "topology", "nodes", "lanes", "uptime_s", "refused", "hosts", "links", "connections", "drops"}, key)
		}
	}
}
