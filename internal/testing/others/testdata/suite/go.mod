module example.org/suite

go 1.26.0
