//go:build e2e

package e2e

// fileKind is what is known of a kind of file that monopod, its shims and the containerd inside it write and read again.
type fileKind struct {
	// owner is the package that writes it.
	owner string
	// durable says that it is synced when it is written; the others may be missing or damaged after a power cut.
	durable bool
	// damaged says what happens when it is.
	damaged string
	// skip says that it is not damaged here, and damaged why.
	skip bool
}

func fileKinds() map[string]fileKind { return map[string]fileKind{} }
