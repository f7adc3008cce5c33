package hops

import (
	"context"
	"fmt"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf"
)

// shareTimes is how many times longer than another figure a share is measured.
const shareTimes = 6

// shareWarmUp is how long each connection is used before the measurement, so that
// its queue has grown. A connection that waits for room in its own queue does not
// demand the whole link.
const shareWarmUp = 300 * time.Millisecond

// shareSizes are the sizes of the messages in bytes: the node's own, and those that
// it forwards.
var shareSizes = [][2]int{{large, large}, {4096, large}, {large, 4096}}

// measureShares has nodes 1 and 2 of a line of three send as much as they can.
func (p *Plan) measureShares(ctx context.Context, r *Report) (err error) {
	s := Shape{Topology: "line", Nodes: 3, Lanes: 1, Frames: true}
	p.progress("starting: %v", s)
	ring, err := p.Start(ctx, s)
	if err != nil {
		return fmt.Errorf("%v: %w", s, err)
	}
	defer func() {
		if closeErr := ring.Close(); err == nil {
			err = closeErr
		}
	}()
	for _, from := range []int{1, 2} {
		t := Task{From: from, To: 3, Test: perf.OneWay, Size: large, Duration: shareWarmUp}
		if _, err := ring.Measure(ctx, t); err != nil {
			return fmt.Errorf("the share of a link: %w", err)
		}
	}
	for i, size := range shareSizes {
		sh := Share{OwnSize: size[0], ForwardedSize: size[1]}
		var own, rate []float64
		for round := range p.Budget.Rounds(p.Rounds, len(shareSizes)-i) {
			p.progress("round %d of %d: the share of a link, %s and %s", round+1, p.Rounds, perf.SizeText(size[0]), perf.SizeText(size[1]))
			used, took, err := floodUntilSent(ctx, ring, sh, shareTimes*p.Duration)
			if err != nil {
				return fmt.Errorf("the share of a link: %w", err)
			}
			sum := float64(used.OwnBytes + used.ForwardedBytes)
			own = append(own, float64(used.OwnBytes)/sum)
			rate = append(rate, sum/float64(took))
		}
		sh.Own, sh.Throughput = perf.SpreadOf(own), median(rate)
		r.Shares = append(r.Shares, sh)
	}
	return nil
}

// mostFlood is the longest time for which nodes are tried that send nothing.
const mostFlood = time.Minute

// floodUntilSent is flood, for twice as long again and again while nothing was sent in the
// middle of the time, as on a machine that is busy.
func floodUntilSent(ctx context.Context, ring Ring, sh Share, d time.Duration) (used Usage, took time.Duration, err error) {
	for ; ; d *= 2 {
		used, took, err = flood(ctx, ring, sh, d)
		if err != nil || used.OwnBytes+used.ForwardedBytes > 0 {
			return used, took, err
		}
		if d >= mostFlood {
			return used, took, fmt.Errorf("nothing was sent within %v", d)
		}
	}
}

// flood has both nodes send for d. It returns what node 2 sent in the middle of
// that time, and how long that was. All that node 2 forwards goes to node 3, except
// a few small frames back.
func flood(ctx context.Context, ring Ring, sh Share, d time.Duration) (used Usage, took time.Duration, err error) {
	failed := make(chan error, 1)
	go func() {
		_, err := ring.Measure(ctx,
			Task{From: 1, To: 3, Test: perf.OneWay, Size: sh.ForwardedSize, Duration: d},
			Task{From: 2, To: 3, Test: perf.OneWay, Size: sh.OwnSize, Duration: d})
		failed <- err
	}()
	time.Sleep(d / 3)
	start := time.Now()
	before, err := ring.Usage(ctx)
	var after []Usage
	if err == nil {
		time.Sleep(d / 2)
		took = time.Since(start)
		after, err = ring.Usage(ctx)
	}
	if measureErr := <-failed; err == nil {
		err = measureErr
	}
	if err != nil {
		return used, took, err
	}
	return after[2].Since(before[2]), took, nil
}
