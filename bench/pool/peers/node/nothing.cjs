// What the threads of piscina are to do.
module.exports = () => {};
