module github.com/forebay-log/forebay/bench

go 1.26.0

require github.com/forebay-log/forebay v0.0.0

replace github.com/forebay-log/forebay => ../
