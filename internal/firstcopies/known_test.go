package firstcopies

// known lists the walks that fall today, by the name of their test.
var known = map[string]knownFall{
	"TestForward/resets":   {disorder, aside},
	"TestForward/silent":   {disorder, aside},
	"TestForward/restarts": {disorder, aside},
	"TestForward/failover": {disorder, aside},
	"TestForward/spool":    {disorder, aside},
	"TestForward/poison":   {disorder, aside},
	"TestForward/all":      {disorder, aside},
	"TestProgram/forward":  {disorder, aside},
}

const aside = "a batch that was started while a failure was being told goes first on the next connection"
