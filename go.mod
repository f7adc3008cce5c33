module github.com/ntbnet/ntbnet

go 1.26
