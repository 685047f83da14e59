package main

import _ "github.com/forebay-log/forebay/bench/bufpool" // registers its rows
