package tun

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Whatever a peer does, and however the texts of its errors vary, there is a line a second for each kind of news.
func TestAPeerDoesNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var lines []string
		p := &peer{node: 2, logf: func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, fmt.Sprintf(format, args...))
		}}
		begun := time.Now()
		for i := 0; time.Since(begun) < 10*time.Second; i++ {
			p.up.Store(true)
			p.said = ""
			p.sayUp()
			time.Sleep(5 * time.Millisecond)
			p.up.Store(false)
			p.say(context.Background(), fmt.Errorf("port %d", i))
			time.Sleep(5 * time.Millisecond)
		}
		p.up.Store(true)
		p.sayUp()
		time.Sleep(3 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		require.LessOrEqual(t, len(lines), 2*12)
		require.Equal(t, "node2 is up", lines[len(lines)-1], "what holds in the end is said")
		require.Equal(t, 10, strings.Count(strings.Join(lines, "\n"), "no connection"))
	})
}
