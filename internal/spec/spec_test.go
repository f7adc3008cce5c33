package spec

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/ring"
	"github.com/stretchr/testify/require"
)

func TestSpecs(t *testing.T) {
	got, err := Parse("shm:x?spin=0&buffer=65536&window=1048576")
	require.NoError(t, err)
	require.Equal(t, &Spec{Meeting: Meeting{Topology: Topology{Kind: "shm"}, Name: "x", Backend: "shm"}, Local: Local{Window: 1 << 20, Buffer: 64 << 10}}, got)
	got, err = Parse("mem:a.b?spin=15us")
	require.NoError(t, err)
	require.Equal(t, &Spec{Meeting: Meeting{Topology: Topology{Kind: "mem"}, Name: "a.b", Backend: "mem"}, Local: Local{Spin: 15 * time.Microsecond}}, got)
	got, err = Parse("shm:default")
	require.NoError(t, err)
	require.Equal(t, time.Duration(-1), got.Spin)
	got, err = Parse("shm:/run/ntbnet/shop/?group=shop&owner=app,0")
	require.NoError(t, err)
	require.Equal(t, &Spec{Meeting: Meeting{Topology: Topology{Kind: "shm"}, Name: "/run/ntbnet/shop", Group: "shop", Owners: []string{"app", "0"}, Backend: "shm"}, Local: Local{Spin: -1}}, got)
	for _, bad := range []string{
		"shm:/a/../b", "shm:/..", "shm:./a", "shm:/a\x00", "shm:/" + strings.Repeat("a", maxPath), "mem:/a",
		"", "shm", "shm:", "tcp:x", "shm:a/b", "shm:x?spin", "shm:x?spin=-1s", "shm:x?spin=2ms",
		"shm:x?buffer=5000", "shm:x?buffer=33554432", "shm:x?window=1000", "shm:x?nodes=3", "shm:x?dma=1", "shm:x?dmafrom=-1", "shm:x?a=%zz",
	} {
		_, err := Parse(bad)
		require.ErrorIs(t, err, syscall.EINVAL, bad)
	}
}

func TestSpecsOfSeveralHosts(t *testing.T) {
	got, err := Parse("ring:x?node=2&nodes=5&window=1048576")
	require.NoError(t, err)
	require.Equal(t, &Spec{Meeting: Meeting{Topology: Topology{Kind: "ring", Node: 2, Nodes: 5}, Name: "x", Backend: "shm"}, Local: Local{Window: 1 << 20, Spin: -1}, Links: Links{Options: ring.Options{Lanes: 1}}}, got)
	got, err = Parse("mesh:x?nodes=16&node=16&lanes=8&backend=mem&spin=0")
	require.NoError(t, err)
	require.Equal(t, &Spec{Meeting: Meeting{Topology: Topology{Kind: "mesh", Node: 16, Nodes: 16}, Name: "x", Backend: "mem"}, Links: Links{Options: ring.Options{Lanes: 8}}}, got)
	got, err = Parse("line:x?node=3")
	require.NoError(t, err)
	require.Equal(t, &Spec{Meeting: Meeting{Topology: Topology{Kind: "line", Node: 3}, Name: "x", Backend: "shm"}, Local: Local{Spin: -1}}, got)
	require.True(t, got.IsMember())
	got, err = Parse("ring:/run/a@b?node=3&owner=7")
	require.NoError(t, err)
	require.Equal(t, &Spec{Meeting: Meeting{Topology: Topology{Kind: "ring", Node: 3}, Name: "/run/a@b", Owners: []string{"7"}, Backend: "shm"}, Local: Local{Spin: -1}}, got)
	got, err = Parse("ring:x?node=2&nodes=3&right=ivshmem:0000:00:03.0,poll&left=ivshmem:/run/a.sock,peers=3")
	require.NoError(t, err)
	require.Equal(t, map[string]end{"right": {kind: "ivshmem", target: "0000:00:03.0", polls: true, places: 2}, "left": {kind: "ivshmem", target: "/run/a.sock", places: 3}}, got.ends)
	got, err = Parse("mesh:x?node=2&nodes=3&node3=ivshmem:/a&node1=file:/b")
	require.NoError(t, err)
	require.Equal(t, map[string]end{"node3": {kind: "ivshmem", target: "/a", places: 2}, "node1": {kind: "file", target: "/b", places: 2}}, got.ends)
	got, err = Parse("ring:x?node=2&nodes=3&right=ntb:0000:b1:00.0&left=ntb")
	require.NoError(t, err)
	require.Equal(t, map[string]end{"right": {kind: "ntb", target: "0000:b1:00.0", places: 2}, "left": {kind: "ntb", places: 2}}, got.ends)
	got, err = Parse("ntb:0000:b1:00.0?lanes=2&window=1048576")
	require.NoError(t, err)
	require.Equal(t, &Spec{Meeting: Meeting{Topology: Topology{Kind: "line", Nodes: 2}, Name: "ntb-0000-b1-00.0", Backend: "shm"}, Local: Local{Window: 1 << 20, Spin: -1}, Links: Links{Options: ring.Options{Lanes: 2}}, bridge: bridge{address: "0000:b1:00.0"}}, got)
	found, err := ForTopology("ntb:0000:b1:00.0?lanes=2")
	require.NoError(t, err)
	require.Equal(t, []string{"line", "ntb-0000-b1-00.0"}, []string{found.Kind, found.Name})
	for bad, want := range map[string]string{
		"ring:x":                                         "as in node=1&nodes=4",
		"ring:x?node=1&nodes=3&node=2":                   "option node is there twice",
		"ring:x?node=1&lanes=2":                          "for the owner of the links",
		"ring:x?node=1&slots=4":                          "for the owner of the links",
		"ring:x?node=1&failover=1":                       "for the owner of the links",
		"ring:x?node=1&share=1":                          "for the owner of the links",
		"ring:x?node=1&nodes=3&share=2":                  "want 0 or 1",
		"ring:x?node=1&nodes=3&share=1&backend=mem":      "which shares nothing",
		"ntb:0000:b1:00.0?share=1":                       "ntb says that",
		"ntb:0000:b1:00.0?host3=a":                       "want host1 to host2",
		"ring:x?node=1&nodes=3&host4=a":                  "option host4=a: want host1 to host3",
		"ring:x?node=1&nodes=3&host2=localhost":          "want names or IP addresses of machines",
		"ring:x?node=1&nodes=3&host2=a,fe80::1":          "want names or IP addresses of machines",
		"ring:x?node=1&nodes=3&host2=0.0.0.0":            "want names or IP addresses of machines",
		"ring:x?node=1&nodes=3&host2=10.0.0.1,":          "want names or IP addresses of machines",
		"ring:x?node=1&host2=1.0.0.1&host3=::ffff:100:1": "each of one node",
		"ring:x?node=1&nodes=3&fallback=2":               "want 0 or 1",
		"shm:x?host1=a":                                  "is one host",
		"line:x?nodes=3":                                 "node=1 to node=3",
		"mesh:x?node=4&nodes=3":                          "want 1 to 3",
		"ring:x?node=0&nodes=3":                          "want a number from 1 to 16",
		"ring:x?node=-1&nodes=3":                         "want a number from 1 to 16",
		"ring:x?node=a&nodes=3":                          "want a number from 1 to 16",
		"ring:x?node=1&nodes=1":                          "want a number from 2 to 16",
		"ring:x?node=1&nodes=17":                         "want a number from 2 to 16",
		"ring:x?node=1&nodes=3&lanes=0":                  "want a number from 1 to 8",
		"ring:x?node=1&nodes=3&lanes=9":                  "want a number from 1 to 8",
		"ring:x?node=1&nodes=3&backend=tcp":              "want shm or mem",
		"ring:x?node=1&nodes=3&slots=1":                  "want a number from 2 to 4096",
		"ring:x?node=1&nodes=3&frame=1000":               "want a multiple of 64 from 256 to 1048576",
		"ring:x?node=1&nodes=3&failover=x":               "want 0 or 1",
		"ring:x?node=1&nodes=3&hops=2":                   "want window, buffer, spin, dmafrom, node, hostI, fallback, backend, nodes, share, lanes, slots, frame, failover, silence, heap, puts, left, right or nodeI",
		"ring:?node=1&nodes=3":                           "want 1 to 32 letters",
		"ring:x?node=1&left=ivshmem:/a":                  "for the owner of the links",
		"line:x?node=1&nodes=2&left=ivshmem:/a":          "option left: node 1 has wires right",
		"ring:x?node=1&nodes=3&node2=ivshmem:/a":         "option node2: node 1 has wires right, left",
		"mesh:x?node=1&nodes=3&node1=ivshmem:/a":         "option node1: node 1 has wires node2, node3",
		"mesh:x?node=1&nodes=3&nodeI=ivshmem:/a":         "want window",
		"mesh:x?node=1&nodes=3&node02=ivshmem:/a":        "want window",
		"ring:x?node=1&nodes=3&left=ivshmem:":            "ivshmem:ADDRESS of",
		"ring:x?node=1&nodes=3&left=ivshmem:0000:00:03":  "ivshmem:ADDRESS of",
		"ring:x?node=1&nodes=3&left=ivshmem:/a,poll":     "ivshmem:ADDRESS of",
		"ring:x?node=1&nodes=3&left=ivshmem:/a,peers=17": "ivshmem:ADDRESS of",
		"ring:x?node=1&nodes=5&left=ivshmem:/a,peers=4":  "want one for each of 5 nodes",
		"ring:x?node=1&nodes=3&left=ntb:":                "want ntb or ntb:ADDRESS",
		"ring:x?node=1&nodes=3&left=ntb:/a":              "want ntb or ntb:ADDRESS",
		"ring:x?node=1&nodes=3&left=ntb,poll":            "want ntb or ntb:ADDRESS",
		"ntb:x":                                          "as in ntb:0000:b1:00.0",
		"ntb:0000:b1:00.0?node=3":                        "want 1 to 2",
		"ntb:0000:b1:00.0?nodes=2":                       "ntb says that",
		"ntb:0000:b1:00.0?right=ntb":                     "ntb says that",
		"ntb:0000:b1:00.0?node2=ntb":                     "ntb says that",
		"ring:x?node=1&nodes=3&left=/a":                  "ivshmem:ADDRESS of",
		"ring:x?node=1&nodes=3&left=file:a":              "or file:/PATH",
		"ring:x?node=1&nodes=3&left=file:/a,poll":        "or file:/PATH",
		"ring:x?node=1&nodes=3&left=file:0000:00:03.0":   "or file:/PATH",
		"shm:x?left=ivshmem:/a":                          "is one host",
		"shm:x?node=1":                                   "is one host",
		"shm:x?group=1":                                  "as in shm:/PATH",
		"ring:x?node=1&owner=a":                          "as in ring:/PATH",
		"shm:/x?group=":                                  "want a group",
		"shm:/x?owner=a,,b":                              "want users",
		"shm:/x?hops=2":                                  "want window, buffer, spin, dmafrom, group or owner",
		"ring:/x?node=1&backend=mem":                     "backend=mem uses no directory",
		"shm:x/y":                                        "want 1 to 32 letters",
		"mem:x?lanes=1":                                  "is one host",
		"star:x?node=1&nodes=3":                          "want shm:NAME, mem:NAME, ntb, or ring:NAME",
		"shm:x?spin=20":                                  "want a time from 0 to 1ms, with its unit",
		"shm:x?window=1M":                                "want a multiple of 4096",
		"shm:x?buffer=1M":                                "want a power of two",
		"shm:x?hops=2":                                   "want window, buffer, spin or dmafrom",
		"shm:x?dmafrom=x":                                "want a number from 0 to 1073741824",
		"shm:x?window=1&buffer=1&spin=1":                 "option buffer=1", // the first by name
	} {
		_, err := Parse(bad)
		require.ErrorIs(t, err, syscall.EINVAL, bad)
		require.ErrorContains(t, err, want, bad)
	}
}

// Half of a bridge can be for heaps where there is one bridge, and one way.
func TestPutsGoByTheOnlyBridge(t *testing.T) {
	for _, good := range []string{
		"line:x?node=1&nodes=2&puts=window", "mesh:x?node=2&nodes=2&node1=ntb&puts=window", "ntb:0000:b1:00.0?puts=window",
		"line:x?node=1&nodes=2&right=ivshmem:0000:00:03.0&heap=1048576&puts=window", "ntb:0000:b1:00.0?heap=1048576&puts=window",
		"ring:x?node=1&nodes=3&puts=requests",
	} {
		s, err := Parse(good)
		require.NoError(t, err, good)
		require.Equal(t, strings.Contains(good, "puts=window"), s.Puts)
		require.False(t, s.AsMember().Puts)
	}
	for bad, want := range map[string]string{
		"line:x?node=1&nodes=3&puts=window":            "want two nodes with one wire",
		"ring:x?node=1&nodes=2&puts=window":            "want two nodes with one wire",
		"line:x?node=1&nodes=2&failover=1&puts=window": "without failover",
		"line:x?node=1&puts=window":                    "for the owner of the links",
		"mesh:x?node=1&nodes=3&node2=file:/a,peers=3&node3=file:/a,peers=3&heap=1048576&puts=window": "want two nodes with one wire",
		"line:x?node=1&nodes=2&puts=1": "want window or requests",
		"shm:x?puts=window":            "is one host",
	} {
		_, err := Parse(bad)
		require.ErrorIs(t, err, syscall.EINVAL, bad)
		require.ErrorContains(t, err, want, bad)
	}
}

// Heaps have room in one memory, which all nodes have in common.
func TestHeapsAreInOneMemory(t *testing.T) {
	for text, good := range map[string]bool{
		"line:x?node=1&nodes=2&right=file:/a&heap=1048576":                              true,
		"mesh:x?node=2&nodes=2&node1=ivshmem:/a&heap=1048576":                           true,
		"line:x?node=2&nodes=3&left=file:/a,peers=3&right=file:/a,peers=3&heap=1048576": true,
		"line:x?node=1&nodes=2&heap=1048576":                                            false,
		"line:x?node=1&nodes=2&right=ntb&heap=1048576":                                  false,
		"line:x?node=1&nodes=2&right=ivshmem:0000:00:03.0&heap=1048576":                 false,
		"line:x?node=1&nodes=3&right=file:/a&heap=1048576":                              false,
		"ring:x?node=1&nodes=2&right=file:/a&left=file:/a&heap=1048576":                 false,
		"line:x?node=2&nodes=3&left=file:/a,peers=3&right=file:/b,peers=3&heap=1048576": false,
		"mesh:x?node=1&nodes=3&node2=file:/a,peers=3&heap=1048576":                      false,
		"ntb:0000:b1:00.0?heap=1048576":                                                 false,
	} {
		_, err := Parse(text)
		if good {
			require.NoError(t, err, text)
			continue
		}
		require.ErrorContains(t, err, "want all ends of one memory", text)
	}
	_, err := Parse("ring:x?node=1&heap=1048576")
	require.ErrorContains(t, err, "for the owner of the links")
	_, err = Parse("line:x?node=1&nodes=2&right=file:/a&heap=1048577")
	require.ErrorContains(t, err, "want a multiple of 4096 from 1048576")
}

// The documents have the table of options, word for word, and the comment of Open has their names.
func TestDocumentsHaveTheOptions(t *testing.T) {
	b, err := os.ReadFile("../../docs/fabrics.md")
	require.NoError(t, err)
	require.Contains(t, string(b), optionsTable())
	b, err = os.ReadFile("../../sdp/fabric.go")
	require.NoError(t, err)
	for _, o := range options {
		require.Regexp(t, `(?m)^//\t.*\b`+o.name+`\b`, string(b))
	}
}

var ofWords = map[whose]string{everyones: "all", paths: "`KIND:/PATH`", nodes: "`ring:`, `line:`, `mesh:`", owners: "the same, with `nodes`"}

// optionsTable is the table of the options as Markdown.
func optionsTable() string {
	var b strings.Builder
	b.WriteString("| option | of fabrics | what | range | unless given |\n|---|---|---|---|---|\n")
	for _, o := range options {
		fmt.Fprintf(&b, "| `%s=%s` | %s | %s | %s | %s |\n", o.name, o.value, ofWords[o.of], o.what, o.want, cmp.Or(o.unset, "–"))
	}
	return b.String()
}

func TestWiring(t *testing.T) {
	for _, c := range []struct {
		topology string
		nodes    int
		want     []Edge
	}{
		{"ring", 2, []Edge{{1, 1, 2}, {2, 2, 1}}},
		{"ring", 4, []Edge{{1, 1, 2}, {2, 2, 3}, {3, 3, 4}, {4, 4, 1}}},
		{"line", 2, []Edge{{1, 1, 2}}},
		{"line", 4, []Edge{{1, 1, 2}, {2, 2, 3}, {3, 3, 4}}},
		{"mesh", 2, []Edge{{1, 1, 2}}},
		{"mesh", 4, []Edge{{1, 1, 2}, {2, 1, 3}, {3, 1, 4}, {4, 2, 3}, {5, 2, 4}, {6, 3, 4}}},
	} {
		require.Equal(t, c.want, slices.Collect(Plan(c.topology, c.nodes)), "%s of %d", c.topology, c.nodes)
	}
}

func TestNamesOfNodes(t *testing.T) {
	for name, want := range map[string]int{
		"node1": 1, "node16": 16, "3": 3, "node99999": 99999,
		"": 0, "node": 0, "node0": 0, "node01": 0, "node-1": 0, "node1.2": 0, "nodex": 0, "node123456": 0, "localhost": 0,
	} {
		got, ok := parseNode(name)
		require.Equal(t, want, got, name)
		require.Equal(t, want != 0, ok, name)
	}
}

func FuzzParseSpec(f *testing.F) {
	f.Add("shm:x?spin=0&buffer=65536&window=1048576")
	f.Add("mem:a?b=%41")
	f.Add("ring:a?node=3&nodes=5&lanes=2")
	f.Fuzz(func(t *testing.T, s string) {
		spec, err := Parse(s)
		if err == nil && (spec.Window < 0 || spec.Buffer < 0 || spec.Spin > time.Millisecond) {
			t.Fatalf("%q: %+v", s, spec)
		}
		if err == nil && spec.Several() && (spec.Node < 1 && !spec.OfBridge() || spec.Node > 16 || !spec.IsMember() && (spec.Node > spec.Nodes || spec.Nodes < 2 || spec.Nodes > 16 || spec.Lanes < 1)) {
			t.Fatalf("%q: %+v", s, spec)
		}
	})
}

// An end of a wire can be attached by itself, by its name or by that of a fabric.
func TestAttachEnd(t *testing.T) {
	for _, c := range []struct {
		name  string
		node  int
		found string
	}{
		{"file:/none", 1, "file:/none"},
		{"line:x?node=2&nodes=2&left=file:/none", 0, "file:/none"},
		{"mesh:x?node=3&nodes=4&node4=file:/none", 0, "file:/none"},
		{"ring:x?node=4&nodes=4&left=file:/none,peers=4", 0, "file:/none"},
	} {
		a, found, err := AttachEnd(c.name, c.node)
		require.NoError(t, err, c.name)
		require.NoError(t, a.Close())
		require.Equal(t, c.found, found)
	}
	for name, want := range map[string]string{
		"file:/none":         "say node 1 at the one host",
		"file:/none,peers=3": "say node 1 at the one host",
		"line:x?node=1":      "it names 0 ends of wires",
		"ring:x?node=1&nodes=3&left=file:/a&right=file:/b": "it names 2 ends of wires",
		"what": "want ntb or ntb:ADDRESS of a bridge",
	} {
		_, _, err := AttachEnd(name, 0)
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, syscall.EINVAL)
	}
}

func TestNamesOfTopologies(t *testing.T) {
	found, err := ForTopology("line:x?node=77&bad=%zz")
	require.NoError(t, err)
	require.Equal(t, "line x", found.Kind+" "+found.Name)
	for _, bad := range []string{"", "shm:x", "mem:x", "ring:", "ring:a/b", "ring"} {
		_, err := ForTopology(bad)
		require.ErrorIs(t, err, syscall.EINVAL, bad)
	}
}
