module github.com/ntbnet/ntbnet/examples

go 1.26.0

require (
	github.com/ntbnet/ntbnet v0.0.0
	github.com/stretchr/testify v1.12.1
	google.golang.org/grpc v1.76.0
)

require (
	github.com/spf13/pflag v1.0.10 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20250804133106-a7a43d27e69b // indirect
	google.golang.org/protobuf v1.36.6 // indirect
)

tool github.com/ntbnet/ntbnet/cmd/shmemrun

replace github.com/ntbnet/ntbnet => ../
