module quantities

go 1.24

require gopkg.in/inf.v0 v0.9.1
