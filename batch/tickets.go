package batch

// Tickets is the range of tickets from First to Last, both included.
type Tickets struct{ First, Last uint64 }
