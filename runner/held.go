package runner

// Held says why a desired pod may not be started now, or its edit not be carried out.
type Held struct {
	Reason  string
	Message string
	// Final says that nothing that would let it start is under way: a kubelet rejects such a pod for good.
	Final bool
}
