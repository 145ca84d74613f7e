// Package volumes prepares on the machine what pods mount: it opens what lies below a volume so that nothing in it can
// lead out of it, binds what it opened, and counts what volumes hold.
//
// It knows files and mounts only: which volume is where, and when it goes, is decided by its callers. Whatever is in a
// volume may have been put there by an enemy, who may change it at any time. No goroutines.
package volumes
