// Command ntbnet is for operators: it shows what runs over bridges and between processes of this machine.
//
//	ntbnet ls                          fabrics, processes, ports, connections
//	ntbnet doctor                      whether SDP works here, and what to do if not
//	ntbnet topology --fabric ring:lab  nodes, links, routes and forwarders
//	ntbnet top                         connections and what goes over them, as top shows processes
//	ntbnet selftest ntb                tests a wire, with a program at each end
//
// It is not a process of any fabric, but for the moment in which doctor listens and dials.
// Packages internal/doctor and internal/selftest do that work. "ntbnet COMMAND --help" has the flags.
package main
