package batch

// Tickets is a range of tickets, both ends included.
type Tickets struct{ First, Last uint64 }
