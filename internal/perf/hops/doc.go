// Package hops measures a ring of node processes: what a connection costs over one
// hop, two, and more, alone and while all nodes send, and how a node shares a link
// between its own traffic and what it forwards. And it measures chains of as many
// processes, which do the same by other means.
//
// It starts no process and knows no transport. The caller implements [Ring] and [Chain],
// and passes functions that start one. It stands beside cmd/sdp-perf, whose ring
// command uses it.
//
//	plan := hops.Plan{Nodes: []int{3}, Hops: []int{1}, Lanes: []int{1}, Rounds: 3,
//		Duration: 50 * time.Millisecond, Start: start}
//	report, err := hops.Run(ctx, plan)
//	err = report.Table(os.Stdout)
//
// How it measures:
//
//   - Each shape (number of nodes, lanes) is a ring of its own, with processes of its
//     own. Within it the rounds are interleaved: each round measures every number of
//     hops, alone and together, in turn. The report has the medians of the rounds.
//   - Alone means node 1 and the node so many hops to its right. Together means every
//     node and the node so many hops to its right, at the same time.
//   - The CPU time of a hop is that of the processes which forwarded, divided by what
//     they forwarded. It includes wake-ups, polling, and the Go runtime.
//   - All chains of all numbers of hops run at the same time, and one after the other is
//     used. So a round has each of them once, and ratios are made within the rounds.
//   - What a chain of nodes does for each message is compared with what relays do: CPU time
//     and sleeps of the processes between the ends, divided by the messages and by the
//     number of these processes.
//   - What nodes offer of their processors while they wait is counted by them, and priced by
//     what one sched_yield takes in the same round. So the rest is the work of a hop. A second
//     price is that of the bare chain's yields, each of which lets another process run.
//   - System calls are counted apart, since counting makes them slower.
package hops
