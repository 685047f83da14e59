package fluent

// A Rival is a client of somebody else's.
type Rival struct {
	Name, Note string
	Acks       bool
	NoStruct   bool // it refuses structs
	// New returns it, for so many goroutines. Nil in a program that is not built
	// with it.
	New func(addr string, workers int) (*Poster, error)
}

// IBM lists what the command ibm measures. Its client is for one goroutine at a
// time: several share one behind a lock, as they do the connection of other
// clients, or have one each, and with it a connection.
func IBM(workers int) []Rival {
	rivals := []Rival{
		{Name: "IBM message", Note: "IBM/fluent-forward-go 0.4.0, SendMessageExt"},
		{Name: "IBM packed", Note: "the same, SendPacked, each goroutine gathers 100"},
		{Name: "IBM message acked", Note: "SendMessageExt with RequireAck", Acks: true},
		{Name: "IBM packed acked", Note: "SendPacked with RequireAck", Acks: true},
	}
	if workers > 1 {
		rivals = append(rivals,
			Rival{Name: "IBM packed, own", Note: "a client and a connection for each goroutine"},
			Rival{Name: "IBM packed acked, own", Note: "a client and a connection for each goroutine", Acks: true})
	}
	for i := range rivals {
		rivals[i].NoStruct = true
	}
	return rivals
}
