package metrics

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestText(t *testing.T) {
	var b strings.Builder
	require.NoError(t, Write(&b, func(w *Writer) {
		w.Family("sdp_x_total", "counter", "What it is.")
		w.Sample(3)
		w.Sample(12345678901, "map", "a\"b\\c\nd", "end", "closed")
		w.Family("sdp_y", "gauge", "Another one.")
		w.Sample(0.25)
	}))
	require.Equal(t, "# HELP sdp_x_total What it is.\n# TYPE sdp_x_total counter\nsdp_x_total 3\n"+
		`sdp_x_total{map="a\"b\\c\nd",end="closed"} 12345678901`+"\n"+
		"# HELP sdp_y Another one.\n# TYPE sdp_y gauge\nsdp_y 0.25\n", b.String())
}

func TestAddressesOfThisMachineAlone(t *testing.T) {
	for _, good := range []string{"127.0.0.1:9477", "localhost:0", "[::1]:80", "127.9.9.9:1", "unix:/run/x"} {
		require.NoError(t, CheckAddress(good))
	}
	for _, bad := range []string{"", ":9477", "0.0.0.0:1", "[::]:1", "10.0.0.1:1", "example.com:1", "127.0.0.1", "127.0.0.1:", "unix:x", "unix:", "unix:/" + strings.Repeat("x", 200)} {
		require.Error(t, CheckAddress(bad), bad)
	}
}

func TestASocketIsTheUsersOwn(t *testing.T) {
	dir, err := os.MkdirTemp("", "m")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	for _, address := range []string{"unix:" + dir + "/s", "127.0.0.1:0"} {
		ln, err := Listen(t.Context(), address)
		require.NoError(t, err)
		if path, ok := strings.CutPrefix(address, "unix:"); ok {
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.EqualValues(t, 0o600, info.Mode().Perm())
		} else {
			address = ln.Addr().String()
		}
		s := Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			Respond(w, func(w *Writer) { w.Family("sdp_x", "gauge", "X.") })
		}))
		r, err := Client(address).Get("http://proxy/metrics")
		require.NoError(t, err)
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.Contains(t, string(text), "# TYPE sdp_x gauge\n")
		require.Contains(t, r.Header.Get("Content-Type"), "version=0.0.4")
		r.Body.Close()
		require.NoError(t, s.Close())
	}
}
