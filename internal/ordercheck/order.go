package ordercheck

// An Order is the order in which records have arrived at a destination. T identifies a record. The
// zero value has no records. A [Checker] uses it, and so may a test whose records have another form.
type Order[T any] struct{ last Latest[T] }

// Latest is the record whose call began last, of those that arrived before a given record. The zero
// value stands for no record.
type Latest[T any] struct {
	ID    T
	Began int64 // 0: there is no record
}

// Arrive adds a record whose call began at the time began, which is positive. It returns the latest
// of the records before it.
func (o *Order[T]) Arrive(id T, began int64) (before Latest[T]) {
	before = o.last
	if began > before.Began {
		o.last = Latest[T]{id, began}
	}
	return before
}

// Follows reports whether the call of l began after a call that returned at the time ret. If it
// did, the record of that call should have arrived before l.
func (l Latest[T]) Follows(ret int64) bool { return ret < l.Began }
