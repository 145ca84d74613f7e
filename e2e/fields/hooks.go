package fields

// hookRows are the rows of lifecycle hooks.
func hookRows() []Row {
	return nil
}
