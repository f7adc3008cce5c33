package recorder

import (
	"encoding/binary"
	"testing"

	"github.com/ntbnet/ntbnet/internal/hello"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// flaws breaks each rule once, with a writer that does everything else right.
var flaws = map[string]struct {
	flaw func(r *rig)
	want string
}{
	"record after STOPPED": {func(r *rig) {
		r.control(0, controlState, stateStopped)
		r.empty(0, 0, 1, kindFIN)
	}, "to a queue of slot 3 after STOPPED"},
	"payload after STOPPED": {func(r *rig) {
		r.control(0, controlState, stateStopped)
		r.out[0].Write(r.at(8), make([]byte, 8))
	}, "to a queue of slot 3 after STOPPED"},
	"credit after STOPPED": {func(r *rig) {
		r.control(0, controlState, stateStopped)
		r.control(0, controlCredit, 1<<32)
	}, "to the control block of slot 3 after STOPPED"},
	"state after STOPPED": {func(r *rig) {
		r.control(0, controlState, stateStopped)
		r.control(0, controlState, stateStopped|1)
	}, "to the control block of slot 3 after STOPPED"},
	"FINISHED before the FIN": {func(r *rig) { r.control(0, controlState, stateFinished) }, "FINISHED before the FIN"},
	"header in a queue that was left": {func(r *rig) {
		r.control(1, controlGrant, grantWord(2, 12, 128<<10))
		r.empty(0, 0, 1, kindMove)
		r.record(0, 64, 2)
	}, "to a queue that was left"},
	"payload in a queue that was left": {func(r *rig) {
		r.control(1, controlGrant, grantWord(2, 12, 128<<10))
		r.empty(0, 0, 1, kindMove)
		r.out[0].Write(r.at(128), make([]byte, 8))
	}, "to a queue that was left"},
	"record before the move": {func(r *rig) {
		r.control(1, controlGrant, grantWord(2, 12, 128<<10))
		r.out[0].Store64(r.region+128<<10+64, 0)
	}, "before the move to it"},
	"move without a grant": {func(r *rig) { r.empty(0, 0, 1, kindMove) }, "a move without a grant"},
	"control block that was not granted": {func(r *rig) {
		r.out[0].Publish32(r.region+controlSize*4+controlState, 1)
	}, "control block of slot 4, which was not granted"},
	"queue that was not granted": {func(r *rig) {
		r.out[0].Write(r.at(minQueue), []byte{1})
	}, "which was not granted"},
	"across the queue's end": {func(r *rig) {
		r.out[0].Write(r.at(minQueue-8), make([]byte, 16))
	}, "which was not granted"},
	"scratch without an engine": {func(r *rig) {
		r.out[0].Write(r.out[0].Len()-64, make([]byte, 64))
	}, "which was not granted"},
	"refused after stores": {func(r *rig) {
		e := r.endpoint()
		e.Slot, e.Offset = 5, 256<<10
		r.send(0, (&hello.Hello{Version: hello.Version, From: 9, To: 10, Endpoint: e}).Marshal())
		r.out[1].Publish32(r.region+controlSize*5+controlState, 1)
		r.send(1, (&hello.Refuse{Version: hello.Version, Slot: 5, Gen: 7, Reason: hello.BacklogFull}).Marshal())
	}, "refuses what it has stored to"},
	"accepted what was not asked for": {func(r *rig) {
		r.send(1, (&hello.HelloAck{Slot: rigSlot, Gen: 7, Endpoint: r.endpoint()}).Marshal())
	}, "that was not asked for"},
	"slot granted twice": {func(r *rig) {
		r.send(0, (&hello.Hello{Version: hello.Version, From: 9, To: 10, Endpoint: r.endpoint()}).Marshal())
	}, "grants slot 3, which is in use"},
	"slot granted again when one side has stopped": {func(r *rig) {
		r.control(0, controlState, stateStopped)
		r.send(1, (&hello.Hello{Version: hello.Version, From: 9, To: 10, Endpoint: r.endpoint()}).Marshal())
	}, "grants slot 3, which is in use"},
	"queue granted twice": {func(r *rig) {
		e := r.endpoint()
		e.Slot = 5
		r.send(0, (&hello.Hello{Version: hello.Version, From: 9, To: 10, Endpoint: e}).Marshal())
	}, "where one of slot 3 is in use"},
	"queue granted uncleared": {func(r *rig) {
		r.side[1].Inbound()[r.region+128<<10] = 1
		r.control(1, controlGrant, grantWord(2, 12, 128<<10))
	}, "without clearing its first header"},
	"control block granted uncleared": {func(r *rig) {
		e := r.endpoint()
		e.Slot, e.Offset = 5, 256<<10
		r.side[0].Inbound()[r.region+controlSize*5+controlState] = 1
		r.send(0, (&hello.Hello{Version: hello.Version, From: 9, To: 10, Endpoint: e}).Marshal())
	}, "without clearing it"},
	"queue outside of the region": {func(r *rig) {
		r.control(1, controlGrant, grantWord(2, 12, rigWindow))
	}, "grants a queue of 4096 bytes"},
	"grant before the last was taken": {func(r *rig) {
		r.control(1, controlGrant, grantWord(2, 12, 128<<10))
		r.control(1, controlGrant, grantWord(3, 12, 192<<10))
	}, "before the last one was taken"},
	"grant of another generation": {func(r *rig) {
		r.control(1, controlGrant, grantWord(3, 12, 128<<10))
	}, "a grant of generation 3 after 1"},
	"published twice": {func(r *rig) {
		r.record(0, 0, 1)
		r.header(0, 0, 1, 8, kindInline)
	}, "is published again"},
	"header before payload": {func(r *rig) {
		r.out[0].Store64(r.at(64), 0)
		r.header(0, 0, 1, 8, kindInline)
	}, "before its payload"},
	"header before the last of the payload": {func(r *rig) {
		r.out[0].Write(r.at(64), make([]byte, 99))
		r.out[0].Store64(r.at(192), 0)
		r.header(0, 0, 1, 100, kindBulk)
	}, "before its payload"},
	"payload after the header": {func(r *rig) {
		r.record(0, 0, 1)
		r.out[0].Write(r.at(8), make([]byte, 8))
	}, "credited"},
	"next header not cleared": {func(r *rig) {
		r.out[0].Write(r.at(8), make([]byte, 8))
		r.header(0, 0, 1, 8, kindInline)
	}, "before the next header was cleared"},
	"another header cleared": {func(r *rig) {
		r.out[0].Write(r.at(8), make([]byte, 8))
		r.out[0].Store64(r.at(128), 0)
		r.header(0, 0, 1, 8, kindInline)
	}, "another header was cleared"},
	"wrong sequence number": {func(r *rig) { r.record(0, 0, 2) }, "of record 1"},
	"unknown kind":          {func(r *rig) { r.empty(0, 0, 1, 9) }, "is none"},
	"header of 4 bytes": {func(r *rig) {
		r.out[0].Publish32(r.at(0), 1)
	}, "a word of 4 bytes in a queue"},
	"behind the FIN": {func(r *rig) {
		r.empty(0, 0, 1, kindFIN)
		r.record(0, 64, 2)
	}, "behind the FIN"},
	"the reserve": {func(r *rig) {
		for i := range 29 {
			r.record(0, 64*i, uint32(i+1))
		}
	}, "takes the reserve"},
	"no room": {func(r *rig) {
		for i := range 28 {
			r.record(0, 64*i, uint32(i+1))
		}
		r.out[0].Write(r.at(28*64+64), make([]byte, 256-64))
		r.out[0].Write(r.at(0), make([]byte, 8))
	}, "is credited"},
	"credit for what was not written": {func(r *rig) {
		r.record(0, 0, 1)
		r.control(1, controlCredit, 1<<32|128)
	}, "128 of 64 bytes that were written"},
	"credit for what is not published": {func(r *rig) {
		r.out[0].Store64(r.at(64), 0)
		r.control(1, controlCredit, 1<<32|64)
	}, "64 of 0 bytes"},
	"credit for a FIN": {func(r *rig) {
		r.empty(0, 0, 1, kindFIN)
		r.control(1, controlCredit, 1<<32|64)
	}, "64 of 0 bytes"},
	"credit for part of a record": {func(r *rig) {
		r.out[0].Write(r.at(8), make([]byte, 100))
		r.out[0].Store64(r.at(128), 0)
		r.header(0, 0, 1, 100, kindInline)
		r.control(1, controlCredit, 1<<32|64)
	}, "for part of a record"},
	"credit taken back": {func(r *rig) {
		r.record(0, 0, 1)
		r.record(0, 64, 2)
		r.control(1, controlCredit, 1<<32|128)
		r.control(1, controlCredit, 1<<32|64)
	}, "bytes that were written"},
	"credit for no queue": {func(r *rig) { r.control(1, controlCredit, 2<<32) }, "that is not written"},
	"state taken back": {func(r *rig) {
		r.control(1, controlState, 1)
		r.control(1, controlState, 2)
	}, "state 0x2 after 0x1"},
	"arm that jumps": {func(r *rig) { r.control(1, controlData, 2<<3|2) }, "data arm 2 after 0"},
	"space arm of another queue": {func(r *rig) {
		r.control(0, controlSpace, 2<<24|1<<3|2)
	}, "in a queue of generation 1"},
	"unused bytes of a control block": {func(r *rig) { r.control(1, 28, 1) }, "no word of a control block"},
	"part of a word": {func(r *rig) {
		r.out[0].Publish32(r.region+controlSize*rigSlot, 1)
	}, "no word of a control block"},
	"note for a slot without a control block": {func(r *rig) {
		r.word(0, offNotes+8*9, 1)
	}, "slot 9, which was never granted"},
	"summary before its note":        {func(r *rig) { r.word(0, offSummary, 9) }, "without a notification word"},
	"master word before its summary": {func(r *rig) { r.word(0, offNotes+8*rigSlot, 9); r.word(0, offMaster, 9) }, "before its summary word"},
	"unused bytes of a link":         {func(r *rig) { r.word(0, 0x100, 1) }, "unused bytes"},
	"link word as 8 bytes":           {func(r *rig) { r.out[0].Publish64(offMaster, 1) }, "not published as 4 bytes"},
	"set-up credit for what was not sent": {func(r *rig) {
		r.word(0, offCredit, 2)
	}, "set-up credit 2 after 0, of 1 frames"},
	"set-up frame without credit": {func(r *rig) {
		for range setupSlots {
			r.send(0, (&hello.Hello{Version: 9, From: 9, To: 10, Endpoint: r.endpoint()}).Marshal())
		}
	}, "with credit for 0"},
	"set-up frame before its payload": {func(r *rig) {
		r.out[0].Publish64(offSetup+setupBytes, 2|28<<32|1<<48|1<<56)
	}, "before its payload"},
	"set-up frame out of order": {func(r *rig) {
		r.out[0].Write(offSetup+2*setupBytes+8, make([]byte, 8))
	}, "where frame 2 is next"},
	"set-up frame of another node": {func(r *rig) {
		b := make([]byte, 16)
		binary.LittleEndian.PutUint32(b, 99)
		r.out[0].Write(offSetup+setupBytes+8, b)
		r.out[0].Publish64(offSetup+setupBytes, 2|0<<32|1<<48|1<<56)
	}, "of node 0x63"},
	"store after Close": {func(r *rig) {
		r.side[0].Close()
		r.control(0, controlState, 1)
	}, "after Close of the device"},
	"a scratchpad more": {func(r *rig) { r.side[0].SetPeerSpad(6, 1) }, "scratchpad 6"},
}

func TestEachRuleIsHeld(t *testing.T) {
	for name, f := range flaws {
		t.Run(name, func(t *testing.T) {
			r := newRig(t).open()
			require.Empty(t, r.said.said)
			f.flaw(r)
			require.Contains(t, r.said.said, f.want)
		})
	}
	t.Run("store before bring-up", func(t *testing.T) {
		r := newRig(t)
		r.word(0, offMaster, 1)
		require.Contains(t, r.said.said, "before bring-up")
	})
}

// slow is a sink below the recorder that waits in the middle of a store.
type slow struct {
	ntb.Device
	entered, leave chan struct{}
}

func (s slow) Store(int, []byte) {}

func (s slow) Publish(int, uint64, int) {
	s.entered <- struct{}{}
	<-s.leave
}

func (s slow) Outbound() ntb.Window { return ntb.SinkWindow(ntb.Basic(s), rigWindow) }

// Two writers must not store the same word at the same time.
func TestTwoWritersOfAWordAreSeen(t *testing.T) {
	r := newRig(t).open()
	d := r.side[0].(*Device)
	s := slow{d.Device, make(chan struct{}), make(chan struct{})}
	d.Device = s
	r.out[0] = d.Outbound()
	done := make(chan struct{})
	store := func() { r.control(0, controlState, 1); done <- struct{}{} }
	go store()
	<-s.entered
	require.Empty(t, r.said.said)
	go store()
	<-s.entered
	close(s.leave)
	<-done
	<-done
	require.Contains(t, r.said.said, "two writers of the word")
}

// updating is a window below the recorder that counts what may be dropped.
type updating struct {
	ntb.Device
	updates int
}

func (u *updating) Store(int, []byte)        {}
func (u *updating) Store64(int, uint64)      {}
func (u *updating) Publish(int, uint64, int) {}
func (u *updating) Update(int, uint64, int)  { u.updates++ }
func (u *updating) Outbound() ntb.Window     { return ntb.SinkWindow(u, rigWindow) }

// A window that may drop replaced values knows behind the recorder too which words those are.
func TestUpdatesArePassedOnAsUpdates(t *testing.T) {
	r := newRig(t).open()
	d := r.side[0].(*Device)
	u := &updating{Device: d.Device}
	d.Device = u
	w := d.Outbound()
	at := r.region + controlSize*rigSlot
	w.Update32(at+controlData, 1<<3|2)
	w.Update64(at+controlCredit, 1<<32)
	require.Empty(t, r.said.said)
	require.Equal(t, 2, u.updates)
}

// Without a Reporter a violation panics.
func TestAViolationPanics(t *testing.T) {
	r := newRig(t).open()
	r.rec.report = nil
	require.PanicsWithValue(t, "recorder: side 0 stores scratchpad 7 of a direct link, after\n"+r.rec.ledgers[0].log.String(),
		func() { r.side[0].SetPeerSpad(7, 1) })
}
