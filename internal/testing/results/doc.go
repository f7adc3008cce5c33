// Command results reads what go test -json has printed:
//
//	go run ./internal/testing/results failed FILE         prints the output of what has failed
//	go run ./internal/testing/results slow FILE           prints the tests that took more than 3 s, the slowest first: seconds
//	                                                      and, behind a tab, package and test
//	go run ./internal/testing/results skipped FILE TESTS  prints all lines that begin with "WARNING:", and one for each
//	                                                      test that was skipped without such a line and whose name
//	                                                      matches the regular expression, with its reason
package main
