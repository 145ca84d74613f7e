package fields

import "slices"

// podRows are the rows of metadata and of spec outside of containers and volumes.
func podRows() []Row {
	return slices.Concat(metaRows(), onHost(lifeRows()), namespaceRows(), nameRows(), onHost(slices.Concat(podSecurityRows(), podResourceRows())))
}
