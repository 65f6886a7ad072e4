//go:build !linux

package transport

import "errors"

// sendRing is of Linux alone.
type sendRing struct{}

func newSendRing() (*sendRing, error) { return nil, errors.ErrUnsupported }

func (*sendRing) send([]socketSend) error { return errors.ErrUnsupported }
