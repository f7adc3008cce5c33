package status

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each key of each type is in the document, in order, with words.
func TestKeysAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/status.md")
	require.NoError(t, err)
	for _, v := range []any{Process{}, Host{}, Link{}, Connection{}, Directory{}, Fabric{}} {
		typ := reflect.TypeOf(v)
		_, section, ok := strings.Cut(string(text), "\n## "+typ.Name()+"\n")
		require.True(t, ok, typ)
		section, _, _ = strings.Cut(section, "\n## ")
		var documented, keys []string
		for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| \\S.* \\|$").FindAllStringSubmatch(section, -1) {
			documented = append(documented, m[1])
		}
		for i := range typ.NumField() {
			key, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			keys = append(keys, key)
		}
		require.Equal(t, keys, documented, typ.Name())
	}
}

func TestConnectionsAreCountedByProcess(t *testing.T) {
	all := []Connection{{Node: 2, Process: 1, Count: 1, Read: 5}, {Node: 1, Process: 9, Count: 3}, {Node: 2, Process: 1, Count: 1, Local: "a"}}
	require.Equal(t, []Connection{{Node: 1, Process: 9, Count: 3}, {Node: 2, Process: 1, Count: 2}}, Counted(all))
	p := &Process{CPU: 1, LastRefusal: "x", Refused: 2, Connections: all}
	require.Equal(t, &Process{Refused: 2, Connections: Counted(all)}, p.ForOthers())
	require.Len(t, p.Connections, 3)
}
