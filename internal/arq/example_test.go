package arq_test

import (
	"fmt"
	"time"

	"github.com/ntbnet/ntbnet/internal/arq"
)

// A frame is lost, and sent again when 200 ms have passed without an acknowledgement.
func ExampleEnd() {
	now := time.Unix(0, 0)
	config := func() arq.Config { return arq.Config{Buf: make([]byte, 1024), Frames: 16, AckAt: 256} }
	asker := arq.Asker(config(), now)
	send := func(e *arq.End) (last arq.Frame) {
		for f, ok := e.Next(now); ok; f, ok = e.Next(now) {
			e.Sent(&f, now)
			fmt.Printf("%v %d %q\n", f.Kind, f.Seq, f.Body)
			last = f
		}
		return last
	}
	send(&asker)
	answerer := arq.Answerer(config()) // when open has come
	send(&answerer)
	asker.Accepted(256) // when accept has come

	asker.Begin(8)
	copy(asker.Extend(5), "hello")
	asker.EndFrame(now)
	send(&asker) // this is lost
	now = asker.Deadline()
	asker.Expire(now)
	f := send(&asker)

	var receiver arq.Receiver
	fmt.Println(receiver.Judge(f.Seq))
	receiver.Took()
	answerer.Arrived(arq.Arrival{Kind: f.Kind, Ack: f.Ack, Expects: receiver.Expects(), Bytes: len(f.Body)}, now)
	now = answerer.Deadline()
	ack := send(&answerer)
	asker.Arrived(arq.Arrival{Kind: ack.Kind, Ack: ack.Ack}, now)
	fmt.Println(asker.Kept(), "frames are kept, after", now.Sub(time.Unix(0, 0)))
	// Output:
	// open 0 ""
	// accept 0 ""
	// data 1 "hello"
	// data 1 "hello"
	// take
	// ack 0 ""
	// 0 frames are kept, after 205ms
}
