module github.com/forebay-log/forebay/integration

go 1.26.0

replace github.com/forebay-log/forebay => ../
