package client

// ServeSession is a session of Supervise.
var ServeSession = serveSession
