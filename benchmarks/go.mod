module github.com/ntbnet/ntbnet/benchmarks

go 1.26.0

require (
	github.com/cloudwego/shmipc-go v0.2.0
	github.com/ntbnet/ntbnet v0.0.0
	golang.org/x/sys v0.49.0
	google.golang.org/grpc v1.76.0
)

require (
	github.com/bytedance/gopkg v0.0.0-20220817015305-b879a72dc90f // indirect
	github.com/go-ole/go-ole v1.2.6 // indirect
	github.com/power-devops/perfstat v0.0.0-20210106213030-5aafc221ea8c // indirect
	github.com/shirou/gopsutil/v3 v3.22.1 // indirect
	github.com/yusufpapurcu/wmi v1.2.2 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20250804133106-a7a43d27e69b // indirect
	google.golang.org/protobuf v1.36.6 // indirect
)

replace github.com/ntbnet/ntbnet => ../
