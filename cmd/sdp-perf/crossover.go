package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ntbnet/ntbnet/ntb/ntbdma"
	"github.com/ntbnet/ntbnet/sdp"
)

// crossoverReport is what a link measures when it comes up.
type crossoverReport struct {
	Fabric    string           `json:"fabric"`
	Threshold int              `json:"threshold_bytes"` // 0 if the engine is never used
	Points    []crossoverPoint `json:"points"`
}

type crossoverPoint struct {
	Size int   `json:"size_bytes"`
	MMIO int64 `json:"mmio_ns"`
	DMA  int64 `json:"dma_ns"`
}

// runCrossover shows what payload costs by CPU stores and by a DMA engine.
func runCrossover(ctx context.Context, args []string, out io.Writer) error {
	fs := newFlagSet("crossover")
	asJSON := fs.Bool("json", false, "print the result as JSON")
	name := fs.String("fabric", "", "fabric whose links get the engine (default one of its own)")
	if helped, err := fs.parse(args, out); helped || err != nil {
		return err
	}
	own := *name == ""
	if own {
		*name = freshName("shm")
	}
	r, err := measureCrossover(ctx, *name)
	if own {
		err = errors.Join(err, removeFabric(*name))
	}
	if err != nil {
		return err
	}
	if *asJSON {
		return writeJSON(out, r)
	}
	return r.table(out)
}

// measureCrossover brings up a link from this process to itself, which measures. The
// engine is one of software: no backend has another yet.
func measureCrossover(ctx context.Context, name string) (*crossoverReport, error) {
	f, err := sdp.OpenWith(name, sdp.Devices{Wrap: ntbdma.Around(ntbdma.Options{Channels: 1})})
	if err != nil {
		return nil, badInputf("%w", err)
	}
	defer f.Close()
	ln, err := f.Listen(sdp.Network, "localhost:0")
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	c, err := f.DialContext(ctx, sdp.Network, ln.Addr().String())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	links := f.Crossovers()
	if len(links) == 0 || len(links[0].Points) == 0 {
		return nil, errors.New("the engine failed while it was measured")
	}
	r := &crossoverReport{Fabric: name, Threshold: links[0].Threshold}
	for _, p := range links[0].Points {
		r.Points = append(r.Points, crossoverPoint{p.Size, p.MMIO.Nanoseconds(), p.DMA.Nanoseconds()})
	}
	return r, nil
}

func (r *crossoverReport) table(out io.Writer) error {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "payload, bytes\tMMIO\tDMA\tDMA against MMIO\t")
	for _, p := range r.Points {
		ratio := float64(p.MMIO) / float64(max(p.DMA, 1))
		fmt.Fprintf(w, "%d\t%v\t%v\t%.2fx\t\n", p.Size, time.Duration(p.MMIO), time.Duration(p.DMA), ratio)
	}
	w.Flush()
	if r.Threshold == 0 {
		fmt.Fprintf(&b, "\n%s: the engine pays at no size, so it is not used.\n", r.Fabric)
	} else {
		fmt.Fprintf(&b, "\n%s: the engine is used from %d bytes on.\n", r.Fabric, r.Threshold)
	}
	fmt.Fprintln(&b, "Median of 9, until the payload has arrived, as measured when a link comes up.")
	_, err := io.WriteString(out, b.String())
	return err
}
