package benchmarks

import (
	"fmt"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/ntbdma"
	"github.com/ntbnet/ntbnet/sdp"
)

// BenchmarkCrossover has a link come up whose device has a DMA engine, one of software, and
// reports what the link then measures: the time until payload of a size has arrived, by CPU
// stores and by the engine, and from which size on the engine is used, 0 for never.
func BenchmarkCrossover(b *testing.B) {
	for b.Loop() {
		x := crossover(b)
		b.ReportMetric(float64(x.Threshold), "threshold-B")
		for _, p := range x.Points {
			b.ReportMetric(float64(p.MMIO), fmt.Sprintf("mmio-%s-ns", sizeText(p.Size)))
			b.ReportMetric(float64(p.DMA), fmt.Sprintf("dma-%s-ns", sizeText(p.Size)))
		}
	}
}

// crossover brings up a link from this process to itself.
func crossover(b *testing.B) sdp.Crossover {
	name := freshName()
	f, err := sdp.OpenWith("shm:"+name, sdp.Devices{Wrap: ntbdma.Around(ntbdma.Options{Channels: 1})})
	if err != nil {
		b.Fatal(err)
	}
	defer removeFabric(name)
	defer f.Close()
	ln, err := f.Listen("sdp", "localhost:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	c, err := f.Dial("sdp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	links := f.Crossovers()
	if len(links) == 0 || len(links[0].Points) == 0 {
		b.Fatal("the engine failed while it was measured")
	}
	return links[0]
}
