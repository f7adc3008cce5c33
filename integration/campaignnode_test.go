//go:build linux

package integration

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
)

func init() { roles["campaign"] = playCampaign }

const (
	campaignMost  = 1 << 20  // most bytes over one connection
	campaignChunk = 16 << 10 // most bytes that one byte acknowledges
)

// campaignPair is the traffic of this process to another node.
type campaignPair struct {
	to    int
	chunk int
	moved atomic.Uint64 // chunks that the other side has acknowledged
	reach atomic.Uint32 // grows with each change; odd while the other side can be reached

	// Owned by the goroutine that counts.
	seen  uint64
	when  uint32
	still int // ticks without progress
	worst int
}

// playCampaign is a node that sends to all others. Its arguments are its spec, a seed,
// for how many ticks a pair may stand still, and how many bytes count as progress. It
// reads these lines:
//
//	reach NODE...   the nodes that can be reached from now on
//	finish          answer "finished" when all of those pairs have made progress
func playCampaign(p *self) error {
	spec := p.args[0]
	seed, err := strconv.ParseUint(p.args[1], 10, 64)
	if err != nil {
		return err
	}
	limit, err := strconv.Atoi(p.args[2])
	if err != nil {
		return err
	}
	chunk, err := strconv.Atoi(p.args[3])
	if err != nil {
		return err
	}
	var own, n int
	if _, err := fmt.Sscanf(spec[strings.Index(spec, "?"):], "?node=%d&nodes=%d", &own, &n); err != nil {
		return err
	}
	f, err := sdp.Open(spec)
	if err != nil {
		return err
	}
	ln, err := f.Listen("sdp", ":7")
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go campaignTake(c)
		}
	}()
	var pairs []*campaignPair
	for to := 1; to <= n; to++ {
		if to != own {
			pair := &campaignPair{to: to, chunk: chunk}
			pairs = append(pairs, pair)
			go pair.send(p, f, rand.New(rand.NewPCG(seed, uint64(to))))
		}
	}
	var finish atomic.Bool
	go campaignCount(p, pairs, limit, &finish)
	p.printf("%s", ln.Addr())
	for {
		line, ok := p.readLine()
		if !ok {
			return nil
		}
		w := strings.Fields(line)
		if w[0] == "finish" {
			finish.Store(true)
			continue
		}
		for _, pair := range pairs {
			// Only this goroutine changes it.
			if was := pair.reach.Load()&1 == 1; was != slices.Contains(w[1:], fmt.Sprint(pair.to)) {
				pair.reach.Add(1)
			}
		}
	}
}

// campaignCount counts ticks. It reports pairs that stand still, and the longest
// standstill of each.
func campaignCount(p *self, pairs []*campaignPair, limit int, finish *atomic.Bool) {
	var since []uint64 // what had moved when finish was read
	for {
		time.Sleep(campaignTick)
		finished := true
		for i, pair := range pairs {
			moved, when := pair.moved.Load(), pair.reach.Load()
			pair.still++
			if moved != pair.seen || when != pair.when || when&1 == 0 {
				pair.seen, pair.when, pair.still = moved, when, 0
			}
			if pair.still > pair.worst {
				pair.worst = pair.still
				p.printf("worst %d %d", pair.to, pair.worst)
			}
			if pair.still == limit {
				p.printf("stuck %d %d", pair.to, pair.still)
			}
			if finish.Load() && len(since) < len(pairs) {
				since = append(since, moved)
			}
			finished = finished && i < len(since) && moved != since[i]
		}
		if finished && finish.CompareAndSwap(true, false) {
			p.printf("finished")
		}
	}
}

// send sends again and again.
func (pair *campaignPair) send(p *self, f *sdp.Fabric, rng *rand.Rand) {
	for {
		if pair.reach.Load()&1 == 0 {
			time.Sleep(time.Millisecond)
			continue
		}
		n := rng.IntN(campaignMost>>rng.IntN(12)) + 1
		wrong, err := pair.once(f, uint32(rng.IntN(streamPeriod)), n)
		if wrong {
			p.printf("wrong: to node %d: %v", pair.to, err)
		}
		if err != nil {
			time.Sleep(time.Millisecond)
		}
	}
}

// once sends n bytes over a new connection. It reports whether the answer is wrong. The
// end of the other side, however it comes, must never cause that.
func (pair *campaignPair) once(f *sdp.Fabric, seed uint32, n int) (wrong bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	c, err := f.DialContext(ctx, "sdp", fmt.Sprintf("node%d:7", pair.to))
	if err != nil {
		return false, err
	}
	defer c.Close()
	sum := sha256.New()
	go func() {
		head := binary.LittleEndian.AppendUint32(nil, seed)
		head = binary.LittleEndian.AppendUint32(head, uint32(n))
		_, err := c.Write(binary.LittleEndian.AppendUint32(head, uint32(pair.chunk)))
		s := newStream(int(seed))
		for left := n; err == nil && left > 0; {
			b := s.next(min(left, pair.chunk))
			left -= len(b)
			_, err = c.Write(b) // an error shows below as well
		}
	}()
	_, _ = io.CopyN(sum, newStream(int(seed)), int64(n))
	answer := make([]byte, 1)
	for left := n; left > 0; left -= pair.chunk {
		if _, err := io.ReadFull(c, answer); err != nil {
			return false, err
		}
		if answer[0] != '+' {
			return true, fmt.Errorf("a chunk of %d bytes is not what was sent", n)
		}
		pair.moved.Add(1)
	}
	answer = make([]byte, sha256.Size)
	if _, err := io.ReadFull(c, answer); err != nil {
		return false, err
	}
	if !bytes.Equal(answer, sum.Sum(nil)) {
		return true, fmt.Errorf("the checksum of %d bytes is not that of what was sent", n)
	}
	return false, nil
}

// campaignTake receives what another node sends.
func campaignTake(c net.Conn) {
	defer c.Close()
	head := make([]byte, 12)
	if _, err := io.ReadFull(c, head); err != nil {
		return
	}
	s, sum := newStream(int(binary.LittleEndian.Uint32(head))), sha256.New()
	buf := make([]byte, binary.LittleEndian.Uint32(head[8:]))
	for left := int(binary.LittleEndian.Uint32(head[4:])); left > 0; {
		b := buf[:min(left, len(buf))]
		if _, err := io.ReadFull(c, b); err != nil {
			return
		}
		left -= len(b)
		sum.Write(b)
		answer := []byte{'+'}
		if _, err := s.Write(b); err != nil {
			answer[0] = '-'
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
	_, _ = c.Write(sum.Sum(nil)) // the other side may be gone
}
